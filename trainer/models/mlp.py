"""``mlp``: perceptron on the rows of the input, without the adjacency."""

from __future__ import annotations

from gnnloom.trainer.algorithms.algorithm import ONE_LAYOUT
from gnnloom.trainer.models.kind import ModelKind

MODEL = ModelKind(
    name="mlp",
    order=4,
    help="Multilayer perceptron, which uses no edges",
    source="Rumelhart, Hinton, Williams, Nature 323, 1986",
    normalizations=("none",),
    place=("gnnloom.trainer.models.networks.mlp", "MLP"),
    needs=frozenset({ONE_LAYOUT}),
    takes_weights=True,
    is_rowwise=True,
)
