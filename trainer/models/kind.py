"""The descriptor of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gnnloom.storage.option import Option
from gnnloom.trainer.models.work import ModelWork

if TYPE_CHECKING:
    from gnnloom.trainer.networks.model import Model


@dataclass(frozen=True, kw_only=True)
class ModelKind:
    """A model that can be chosen.

    The module that holds it must not import torch, except inside ``load``.

    Attributes:
        name: as given with ``--model``.
        order: position among the choices; equal ones are sorted by name.
        help: one line of help text.
        source: the paper.
        normalizations: normalizations of the adjacency that the model is defined for; the usual one comes first.
        load: imports the class.
        needs: capabilities that an algorithm must have to run the model, such as ``ONE_LAYOUT``.
        takes_weights: defined for weighted edges.
        work: what its layers compute and keep, for planning. None if it is not known: the planner then refuses the
            model, and its memory is projected as the most that one of gnnloom's takes.
        options: the model's own options by name. Those of gnnloom's models are fields of ModelConfig; all others are
            given as ``--model-options name=value``.
    """

    name: str
    order: int
    help: str
    source: str
    normalizations: tuple[str, ...]
    load: Callable[[], type[Model]]
    needs: frozenset[str] = frozenset()
    takes_weights: bool = False
    work: ModelWork | None = None
    options: Mapping[str, Option] = field(default_factory=dict)
