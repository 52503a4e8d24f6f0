"""``gin``: graph isomorphism network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnnloom.trainer.algorithms.algorithm import ONE_LAYOUT
from gnnloom.trainer.models.kind import ModelKind, ModelWork, Widths, product_of


def inner(after: Sequence[int], options: Mapping[str, Any]) -> Sequence[int]:  # noqa: ARG001
    """The perceptron is as wide as the layer's output; in the last layer, as wide as its input."""
    return (*after[:-1], after[-2] if len(after) > 1 else after[-1])


def parameters(widths: Widths) -> tuple[int, int]:
    """Both matrices and biases of the perceptrons, and the factor of the vertex itself."""
    biases = sum(widths.after) + sum(widths.inner) if widths.bias else 0
    matrices = product_of(widths.before, widths.inner) + product_of(widths.inner, widths.after)
    return matrices, len(widths.after) + biases


MODEL = ModelKind(
    name="gin",
    order=2,
    help="Graph isomorphism network",
    source="Xu, Hu, Leskovec, Jegelka, ICLR 2019",
    normalizations=("none",),
    place=("gnnloom.trainer.models.networks.gin", "GIN"),
    work=ModelWork(weights=2, inner=inner, parameters=parameters, kept=2, passing=3),
    needs=frozenset({ONE_LAYOUT}),
)
