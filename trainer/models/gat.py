"""``gat``: graph attention network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnnloom.trainer.algorithms.algorithm import NEIGHBORS, ONE_LAYOUT
from gnnloom.trainer.models.kind import ModelKind, ModelWork, Widths, product_of
from gnnloom.trainer.models.options import HEAD_OPTIONS


def inner(after: Sequence[int], options: Mapping[str, Any]) -> Sequence[int]:
    """The heads of hidden layers share the width; each head of the last layer has all of it."""
    return (*after[:-1], after[-1] * int(options["heads"]))


def parameters(widths: Widths) -> tuple[int, int]:
    """A weight matrix, a bias, and two vectors that score a source and a target."""
    biases = sum(widths.after) if widths.bias else 0
    return product_of(widths.before, widths.inner), biases + 2 * sum(widths.inner)


MODEL = ModelKind(
    name="gat",
    order=3,
    help="Graph attention network",
    source="Velickovic et al., ICLR 2018",
    normalizations=("none",),
    place=("gnnloom.trainer.models.networks.gat", "GAT"),
    work=ModelWork(attends=True, inner=inner, parameters=parameters),
    needs=frozenset({NEIGHBORS, ONE_LAYOUT}),
    options=HEAD_OPTIONS,
)
