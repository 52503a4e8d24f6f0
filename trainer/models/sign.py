"""``sign``: scalable inception graph network, on features and their products with powers of the adjacency."""

from __future__ import annotations

from gnnloom.trainer.algorithms.algorithm import ONE_LAYOUT
from gnnloom.trainer.models.kind import ModelKind

MODEL = ModelKind(
    name="sign",
    order=5,
    help="SIGN: one linear layer per propagated step, side by side, and a perceptron on them",
    source="Frasca et al., GRL+ workshop at ICML 2020",
    normalizations=("none",),
    place=("gnnloom.trainer.models.networks.sign", "SIGN"),
    needs=frozenset({ONE_LAYOUT}),
    takes_weights=True,
    is_rowwise=True,
    takes_steps=True,
)
