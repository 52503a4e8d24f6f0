"""``gcn``: graph convolutional network."""

from __future__ import annotations

from gnnloom.trainer.models.kind import ModelKind, ModelWork

MODEL = ModelKind(
    name="gcn",
    order=0,
    help="Graph convolutional network",
    source="Kipf, Welling, ICLR 2017",
    normalizations=("symmetric", "mean", "none"),
    place=("gnnloom.trainer.models.networks.gcn", "GCN"),
    takes_weights=True,
    recomputes=True,
    work=ModelWork(),
)
