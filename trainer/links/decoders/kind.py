"""The descriptor of a decoder, which scores a pair from the rows of its ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gnnloom.storage.descriptors import LazyClass
from gnnloom.storage.option import Option


@dataclass(frozen=True, kw_only=True)
class DecoderKind(LazyClass):
    """A decoder that can be chosen.

    The module that holds it must not import torch.

    Attributes:
        name: as given with ``--decoder``.
        order: position among the choices; decoders of equal order are sorted by name.
        help: one line of help text.
        source: the paper.
        place: module and class, a :class:`gnnloom.trainer.links.decoder.Decoder`.
        is_symmetric: a pair and its reverse have the same score.
        gives_several: a pair may have several scores, such as one per class.
        options: the decoder's own options by name.
    """

    name: str
    order: int
    help: str
    source: str = ""
    is_symmetric: bool = False
    gives_several: bool = True
    options: Mapping[str, Option] = field(default_factory=dict)
