"""What a model computes and keeps in every layer, for planning: part of its descriptor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Widths:
    """Widths of all layers.

    Attributes:
        before: of the input of every layer.
        inner: of H W, its first product with a weight.
        after: of its output.
        bias: layers have biases.
    """

    before: Sequence[int]
    inner: Sequence[int]
    after: Sequence[int]
    bias: bool


def _same_inner(after: Sequence[int], options: Mapping[str, Any]) -> Sequence[int]:  # noqa: ARG001
    return after


def _one_matrix(widths: Widths) -> tuple[int, int]:
    return product_of(widths.before, widths.inner), sum(widths.after) if widths.bias else 0


def product_of(rows: Sequence[int], columns: Sequence[int]) -> int:
    """Numbers in one weight matrix per layer."""
    return sum(row * column for row, column in zip(rows, columns, strict=True))


@dataclass(frozen=True, kw_only=True)
class ModelWork:
    """What the layers of a model do, in addition to one product with the adjacency and the activation.

    Attributes:
        weights: weight matrices by which every layer multiplies.
        adds_own: the layer adds a product of the vertex's own features to that of its neighbors'.
        attends: neighbors are weighted by attention, whose gradients return along the forward exchange.
        inner: widths of H W in every layer, from those of the outputs and the model's own options.
        parameters: numbers in the weight matrices, and in the vectors that all ranks hold; without normalization.
        kept: results of the width of a layer's output that the backward pass needs.
        passing: results of that width that exist for a moment only.
        keeps_features: the input features stay in memory although their product is kept.
    """

    weights: int = 1
    adds_own: bool = False
    attends: bool = False
    inner: Callable[[Sequence[int], Mapping[str, Any]], Sequence[int]] = _same_inner
    parameters: Callable[[Widths], tuple[int, int]] = _one_matrix
    kept: int = 0
    passing: int = 2
    keeps_features: bool = False


#: A model that does not say what it does counts as the one that needs most memory.
UNKNOWN = ModelWork(weights=2, kept=2, passing=3, keeps_features=True)
