"""Reads a rank's windows of the permuted, normalized adjacency from grid shards.

Layers alternate between two matrices. Layers 0, 2, ... multiply by Pr A Pc^T, and so take rows in the order Pc to rows
in the order Pr; layers 1, 3, ... multiply by Pc A Pr^T, and take them back. Without a permutation, or with a single
one, both are the same matrix. The double permutation comes from Ranjan et al., "Plexus" (SC 2025).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.ranges import Span, split_range
from gnnloom.storage.shards.grid_shards import GridShards
from gnnloom.storage.shards.grid_variants import TRANSPOSED, stored_variants
from gnnloom.trainer.data.adjacency_scaling import Scaling, scaling
from gnnloom.trainer.data.target_edges import remaining_degree
from gnnloom.trainer.kernels.dispatch import (
    SparseProduct,
    SparseRows,
    listed_rows,
    sparse_product,
)
from gnnloom.trainer.place.arrays import array_dtype
from gnnloom.trainer.place.place import Place

#: A stored variant, rows of it, and ranges of columns.
_Key = tuple[str, Span, tuple[Span, ...]]


def vertex_order(layer: int) -> str:
    """Order of the rows that enter a layer: ``columns`` (Pc) or ``rows`` (Pr)."""
    return "columns" if layer % 2 == 0 else "rows"


class GridAdjacency:
    """Reads and keeps a rank's blocks for products; no block is read or kept twice. Communicates nothing."""

    def __init__(
        self,
        shards: GridShards,
        normalization: str,
        place: Place,
        counter: ReadCounter | None = None,
    ) -> None:
        self.shards = shards
        self.num_vertices = shards.num_vertices
        self._place = place
        self._normalization = normalization
        self._counter = counter
        self._stored = stored_variants(symmetric=shards.symmetric, double=shards.permutation == "double")
        self._blocks: dict[_Key, list[CSR]] = {}
        self._listed: dict[_Key, list[SparseRows]] = {}
        self._products: dict[_Key, list[SparseProduct]] = {}
        self._scalings: dict[tuple[str, Span], Scaling] = {}
        self._degrees: dict[tuple[str, Span], NDArray[np.float64]] = {}
        self._reduced: dict[tuple[str, Span], Scaling] = {}

    @property
    def normalizes(self) -> bool:
        """Whether the factors depend on the degrees."""
        return self._normalization != "none"

    def order(self, layer: int) -> str:
        """Order of the rows that enter a layer; always ``rows`` if both orders are the same."""
        return vertex_order(layer) if self.shards.permutation == "double" else "rows"

    def blocks(self, layer: int, rows: Span, columns: list[Span], *, transposed: bool = False) -> list[CSR]:
        """Rows of a layer's matrix, or of its transpose, in blocks of columns, each numbered from 0.

        Args:
            rows: positions in the order of the product's output.
            columns: ascending ranges of positions in the order of its input.
        """
        key = self._key(layer, rows, columns, transposed=transposed)
        if key not in self._blocks:
            self._blocks[key] = self.shards.windows(
                key[0], rows, columns, self._counter, array_dtype(self._place.sum_dtype)
            )
        return self._blocks[key]

    def _key(self, layer: int, rows: Span, columns: list[Span], *, transposed: bool) -> _Key:
        """Identifies windows by the stored variant and their ranges."""
        variant = "even" if layer % 2 == 0 else "odd"
        # Symmetric graphs and single permutations store fewer variants, so layers and directions share windows.
        return self._stored[TRANSPOSED[variant] if transposed else variant], rows, tuple(columns)

    def listed(self, layer: int, rows: Span, columns: list[Span], *, transposed: bool = False) -> list[SparseRows]:
        """Like :meth:`blocks`, with a list of non-empty rows for blocks that have few."""
        key = self._key(layer, rows, columns, transposed=transposed)
        if key not in self._listed:
            self._listed[key] = [
                listed_rows(block) for block in self.blocks(layer, rows, columns, transposed=transposed)
            ]
        return self._listed[key]

    def forget(self) -> None:
        """Drop the references to all blocks, so that only the operators that read the blocks hold them.

        An operator that releases a layer then frees the layer's memory.
        """
        for kept in (self._blocks, self._listed, self._products):
            kept.clear()

    def product(self, block: CSR | SparseRows) -> SparseProduct:
        """A block, prepared for products."""
        return sparse_product(block, self._place)

    def products(self, layer: int, rows: Span, columns: list[Span], *, transposed: bool = False) -> list[SparseProduct]:
        """Like :meth:`listed`, prepared for products."""
        key = self._key(layer, rows, columns, transposed=transposed)
        if key not in self._products:
            self._products[key] = [
                self.product(each) for each in self.listed(layer, rows, columns, transposed=transposed)
            ]
        return self._products[key]

    def scaling(self, order: str, span: Span) -> Scaling:
        """The normalization's factors of the vertices at some positions of an order.

        Raises:
            InputError: a degree is negative or not finite.
        """
        if (order, span) in self._reduced:
            return self._reduced[order, span]
        if (order, span) not in self._scalings:
            degree = self._read_degree(order, span) if self.normalizes else np.empty(0)
            self._scalings[order, span] = self._scaling(degree)
        return self._scalings[order, span]

    def _scaling(self, degree: NDArray[np.float64]) -> Scaling:
        return scaling(str(self.shards.artifact.path), self._normalization, degree, self._place)

    def degree(self, order: str, span: Span) -> NDArray[np.float64]:
        """(span,) float64 row sums of the vertices at some positions; read once, and kept."""
        if (order, span) not in self._degrees:
            self._degrees[order, span] = self._read_degree(order, span)
        return self._degrees[order, span]

    def _read_degree(self, order: str, span: Span) -> NDArray[np.float64]:
        # A window has only some columns of its rows, so it cannot count their degrees.
        return self.shards.vertex_data("degree", order, span, self._counter).astype(np.float64)

    def reduce_degrees(self, excluded: Mapping[tuple[str, Span], NDArray[np.float64]]) -> None:
        """Use the factors of reduced degrees from now on.

        Args:
            excluded: for orders and spans, (span,) float64 sums to subtract. Other spans have the factors of all
                entries.

        Raises:
            InputError: a difference is negative.
        """
        self._reduced = {
            where: self._scaling(remaining_degree(self.degree(*where), sums)) for where, sums in excluded.items()
        }

    def positions(self, order: str, vertex: NDArray[np.int64]) -> NDArray[np.int64]:
        """(len(vertex),) int64 positions of vertices in an order."""
        return self.shards.positions(order, vertex)

    def vertex_ids(self, order: str, span: Span) -> NDArray[np.int64]:
        """(span,) int64 global ids of the vertices at some positions of an order."""
        return self.shards.vertex_ids(order, span, self._counter)


def split_rows(matrix: CSR, num_blocks: int) -> list[tuple[slice, CSR]]:
    """Split a matrix into blocks of about equal numbers of rows, which share its memory.

    Returns:
        For every block its rows within the matrix, and the block.
    """
    blocks = []
    for start, stop in (split_range(matrix.num_rows, num_blocks, number) for number in range(num_blocks)):
        entries = slice(int(matrix.indptr[start]), int(matrix.indptr[stop]))
        data = None if matrix.data is None else matrix.data[entries]
        # Only the row pointers are copied; slices of the entries share memory.
        indptr = matrix.indptr[start : stop + 1] - matrix.indptr[start]
        block = CSR(matrix.row_offset + start, indptr, matrix.indices[entries], data, matrix.num_columns)
        blocks.append((slice(start, stop), block))
    return blocks
