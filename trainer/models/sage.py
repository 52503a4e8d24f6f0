"""``sage``: GraphSAGE with the mean aggregator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnloom.trainer.models.kind import ModelKind

if TYPE_CHECKING:
    from gnnloom.trainer.networks.model import Model


def load() -> type[Model]:
    """Import the class."""
    from gnnloom.trainer.networks.sage import GraphSAGE  # noqa: PLC0415 - imports torch

    return GraphSAGE


MODEL = ModelKind(
    name="sage",
    order=1,
    help="GraphSAGE with the mean aggregator",
    source="Hamilton, Ying, Leskovec, NeurIPS 2017",
    normalizations=("mean",),
    load=load,
)
