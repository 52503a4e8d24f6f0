"""Finds all decoders: gnnloom's, decoders of other installed packages, and classes that a user names."""

from __future__ import annotations

from collections.abc import Mapping

import gnnloom.trainer.links.decoders
from gnnloom.storage.descriptors import load_class, load_descriptors
from gnnloom.trainer.links.decoders.kind import DecoderKind

#: Decoders by name, in the order of choices.
DECODERS: Mapping[str, DecoderKind] = load_descriptors(
    gnnloom.trainer.links.decoders, "DECODER", "gnnloom.decoders", DecoderKind
)


def decoder_kind(decoder: str) -> DecoderKind:
    """The descriptor of a decoder, or one made from a class that is named as ``package.module:Class``.

    Raises:
        InputError: there is no such class, or it is not a decoder.
    """
    if decoder in DECODERS:
        return DECODERS[decoder]
    from gnnloom.trainer.links.decoder import Decoder  # noqa: PLC0415 - imports torch

    found, (module, _, name) = load_class("decoder", decoder, Decoder), decoder.partition(":")
    return DecoderKind(
        name=decoder,
        order=0,
        help=(found.__doc__ or decoder).strip().partition("\n")[0],
        source=found.__module__,
        place=(module, name),
        is_symmetric=found.is_symmetric,
        gives_several=found.gives_several,
        options=found.own_options,
    )
