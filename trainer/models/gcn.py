"""``gcn``: graph convolutional network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnloom.trainer.models.kind import ModelKind
from gnnloom.trainer.models.work import ModelWork

if TYPE_CHECKING:
    from gnnloom.trainer.networks.model import Model


def load() -> type[Model]:
    """Import the class."""
    from gnnloom.trainer.networks.gcn import GCN  # noqa: PLC0415 - imports torch

    return GCN


MODEL = ModelKind(
    name="gcn",
    order=0,
    help="Graph convolutional network",
    source="Kipf, Welling, ICLR 2017",
    normalizations=("symmetric", "mean", "none"),
    load=load,
    takes_weights=True,
    work=ModelWork(),
)
