"""``gat``: graph attention network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnloom.trainer.algorithms.algorithm import NEIGHBORS, ONE_LAYOUT
from gnnloom.trainer.algorithms.option import Option
from gnnloom.trainer.models.kind import ModelKind

if TYPE_CHECKING:
    from gnnloom.trainer.networks.model import Model


def load() -> type[Model]:
    """Import the class."""
    from gnnloom.trainer.networks.gat import GAT  # noqa: PLC0415 - imports torch

    return GAT


MODEL = ModelKind(
    name="gat",
    order=3,
    help="Graph attention network",
    source="Velickovic et al., ICLR 2018",
    normalizations=("none",),
    load=load,
    needs=frozenset({NEIGHBORS, ONE_LAYOUT}),
    options={
        "heads": Option(default=4, help="Number of attention heads, which share the hidden width", least=1),
        "negative_slope": Option(default=0.2, help="Slope of the attention's LeakyReLU for negative values", below=1.0),
    },
)
