"""``gat``: graph attention network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gnnloom.trainer.algorithms.algorithm import NEIGHBORS, ONE_LAYOUT
from gnnloom.trainer.models.kind import ModelKind, ModelWork, Widths, product_of
from gnnloom.trainer.models.options import HEAD_OPTIONS


def inner(after: Sequence[int], options: Mapping[str, Any]) -> Sequence[int]:
    """The heads of hidden layers share the width; each head of the last layer has all of it."""
    return (*after[:-1], after[-1] * int(options["heads"]))


def parameters(widths: Widths) -> tuple[int, int]:
    """A weight matrix, a bias, and two vectors that score a source and a target.

    With dynamic attention, two weight matrices and their biases, and one vector.
    """
    biases = sum(widths.after) if widths.bias else 0
    matrix, inner = product_of(widths.before, widths.inner), sum(widths.inner)
    if widths.own["attention"] == "v2":
        return 2 * matrix, biases + (3 if widths.bias else 1) * inner
    return matrix, biases + 2 * inner


def work_with(work: ModelWork, options: Mapping[str, Any]) -> ModelWork:
    """Dynamic attention multiplies by a second matrix, and keeps the product for the backward pass."""
    return replace(work, weights=2, kept=1) if options["attention"] == "v2" else work


MODEL = ModelKind(
    name="gat",
    order=3,
    help="Graph attention network",
    source="Velickovic et al., ICLR 2018; GATv2: Brody, Alon, Yahav, ICLR 2022",
    normalizations=("none",),
    place=("gnnloom.trainer.models.networks.gat", "GAT"),
    work=ModelWork(attends=True, inner=inner, parameters=parameters),
    work_with=work_with,
    needs=frozenset({NEIGHBORS, ONE_LAYOUT}),
    options=HEAD_OPTIONS,
)
