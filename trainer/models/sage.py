"""``sage``: GraphSAGE with the mean aggregator."""

from __future__ import annotations

from gnnloom.trainer.models.kind import ModelKind, ModelWork, Widths, product_of


def parameters(widths: Widths) -> tuple[int, int]:
    """Two weight matrices, and a bias."""
    return 2 * product_of(widths.before, widths.inner), sum(widths.after) if widths.bias else 0


MODEL = ModelKind(
    name="sage",
    order=1,
    help="GraphSAGE with the mean aggregator",
    source="Hamilton, Ying, Leskovec, NeurIPS 2017",
    normalizations=("mean",),
    place=("gnnloom.trainer.models.networks.sage", "GraphSAGE"),
    work=ModelWork(weights=2, adds_own=True, parameters=parameters, passing=3),
)
