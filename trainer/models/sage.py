"""``sage``: GraphSAGE with the mean aggregator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnloom.trainer.models.kind import ModelKind
from gnnloom.trainer.models.work import ModelWork, Widths, product_of

if TYPE_CHECKING:
    from gnnloom.trainer.networks.model import Model


def load() -> type[Model]:
    """Import the class."""
    from gnnloom.trainer.networks.sage import GraphSAGE  # noqa: PLC0415 - imports torch

    return GraphSAGE


def parameters(widths: Widths) -> tuple[int, int]:
    """Two weight matrices, and a bias."""
    return 2 * product_of(widths.before, widths.inner), sum(widths.after) if widths.bias else 0


MODEL = ModelKind(
    name="sage",
    order=1,
    help="GraphSAGE with the mean aggregator",
    source="Hamilton, Ying, Leskovec, NeurIPS 2017",
    normalizations=("mean",),
    load=load,
    work=ModelWork(weights=2, adds_own=True, parameters=parameters, passing=3, keeps_features=True),
)
