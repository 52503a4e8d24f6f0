"""Excludes target edges from steps: products with A - B, and degrees without B, but no second adjacency.

A model that predicts an edge must not gather over this edge. With B the edges of a step's positive pairs, a product
adds the rows of -B to the rows of A from the same operands, so every rank receives the same rows as without B.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import Protocol, runtime_checkable

from torch import Tensor

from gnnloom.trainer.data.target_edges import Chosen, ExcludedEntries, PairSource
from gnnloom.trainer.kernels.dispatch import (
    ColumnScale,
    Progress,
    SparseProduct,
    sparse_product,
)
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.place.place import Place


@runtime_checkable
class ExcludingOperator(Operator, Protocol):
    """An operator whose steps can exclude edges of training pairs."""

    def prepare_targets(self, source: PairSource) -> None:
        """Distribute the edges that steps may exclude. Collective; once, before :meth:`exclude`.

        Raises:
            CollectiveError: a pair has no vertex of the graph, could not be read, or has no edge in the shards.
            InputError: the pairs stand for both directions, but the adjacency is not symmetric, or the reverse.
        """
        ...

    def exclude(self, chosen: Chosen | None) -> None:
        """Exclude the edges of some pairs from all products until the next call; None for no edge.

        Every rank calls it with the same choice before a step. Communicates nothing.

        Raises:
            InputError: without the edges, the weights of a row have a negative sum, which cannot be normalized.
            ValueError: called before :meth:`prepare_targets`, or after a product with all edges was kept.
        """
        ...


def check_excludes(targets: Collection[object], *, keeps_product: bool) -> None:
    """Check that an operator can exclude edges.

    Args:
        targets: result of :meth:`ExcludingOperator.prepare_targets`.
        keeps_product: the operator released a layer, whose product with all edges is used from then on.

    Raises:
        ValueError: the operator cannot exclude edges.
    """
    if not targets:
        raise ValueError("exclude: call prepare_targets first")
    if keeps_product:
        raise ValueError("exclude: the first layer's product is kept, and has all edges; do not keep it")


class ExcludedBlock:
    """The entries that a step excludes from one block of the adjacency; prepared for its first product."""

    def __init__(self, entries: ExcludedEntries, place: Place) -> None:
        self.entries, self._place = entries, place

    @cached_property
    def _product(self) -> SparseProduct:
        return sparse_product(self.entries.listed(), self._place)

    def subtract(
        self,
        dense: Tensor,
        out: Tensor,
        row_scale: Tensor,
        column_scale: ColumnScale | None = None,
        progress: Progress = None,
    ) -> None:
        """Subtract diag(row_scale) B diag(column_scale) dense from ``out``; arguments as for a product with A."""
        if not len(self.entries.row):
            return
        # Negative factors of rows, so that each term has the same bits as the term that the product with A has added.
        negative = self._place.empty((len(out),), self._place.sum_dtype)
        negative = negative.copy_(row_scale).neg_() if len(row_scale) else negative.fill_(-1)
        self._product.multiply(dense, out, negative, accumulate=True, column_scale=column_scale, progress=progress)
