"""``gin``: graph isomorphism network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnloom.trainer.algorithms.algorithm import ONE_LAYOUT
from gnnloom.trainer.models.kind import ModelKind

if TYPE_CHECKING:
    from gnnloom.trainer.networks.model import Model


def load() -> type[Model]:
    """Import the class."""
    from gnnloom.trainer.networks.gin import GIN  # noqa: PLC0415 - imports torch

    return GIN


MODEL = ModelKind(
    name="gin",
    order=2,
    help="Graph isomorphism network",
    source="Xu, Hu, Leskovec, Jegelka, ICLR 2019",
    normalizations=("none",),
    load=load,
    needs=frozenset({ONE_LAYOUT}),
)
