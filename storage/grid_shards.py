"""Grid shards (2D): the permuted adjacency in p x q blocks, from which any rank of any grid cuts its window.

With row order Pr and column order Pc there are up to four *variants* of the matrix, stored once
where they are equal:

====================  ==================  ==========================================
variant               matrix              equal to another one
====================  ==================  ==========================================
``even``              Pr A Pc^T
``odd``               Pc A Pr^T           ``even`` unless the permutation is double
``even_transposed``   Pc A^T Pr^T         ``odd`` if the graph is symmetric
``odd_transposed``    Pr A^T Pc^T         ``even`` if the graph is symmetric
====================  ==================  ==========================================

Rows and columns are cut at i*n//p (see :func:`split_range`), without padding.  The transpose of a
window of one variant is a window of its transposed variant, rows and columns exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.arrays import ArrayReader, ReadCounter
from gnnloom.storage.artifact import Artifact
from gnnloom.storage.csr import CSR, index_dtype
from gnnloom.storage.permutation import KeyedPermutation

TRANSPOSED = {"even": "even_transposed", "odd": "odd_transposed", "even_transposed": "even", "odd_transposed": "odd"}

Span = tuple[int, int]


def split_range(size: int, parts: int, number: int) -> Span:
    """Range ``number`` of 0..size-1 cut into ``parts``: [number*size//parts, (number+1)*size//parts)."""
    return number * size // parts, (number + 1) * size // parts


def stored_variants(*, symmetric: bool, double: bool) -> dict[str, str]:
    """For each variant the one that is stored in its place."""
    odd = "odd" if double else "even"
    if symmetric:
        return {"even": "even", "odd": odd, "even_transposed": odd, "odd_transposed": "even"}
    even_transposed = "even_transposed"
    odd_transposed = "odd_transposed" if double else even_transposed
    return {"even": "even", "odd": odd, "even_transposed": even_transposed, "odd_transposed": odd_transposed}


def cell_path(variant: str, row: int, column: int) -> str:
    """Path of one block of a variant within the artifact."""
    return f"grid/{variant}/{row:03d}/{column:03d}"


def order_path(order: str, row: int) -> str:
    """Path of the vertex data of row range ``row`` in the order ``rows`` (Pr) or ``columns`` (Pc)."""
    return f"order/{order}/{row:03d}"


@dataclass(frozen=True)
class _Cell:
    """The part of one stored block that a window overlaps, in the block's own numbers."""

    path: str
    rows: Span
    columns: Span
    width: int
    row_start: int
    column_shift: int

    @property
    def whole_width(self) -> bool:
        return self.columns == (0, self.width)


class GridShards:
    """The grid shards of one permutation."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.num_vertices: int = artifact.sizes["vertex"]
        self.num_features: int = artifact.sizes.get("feature", 0)
        self.num_classes: int = artifact.facts.get("num_classes", 0)
        self.symmetric: bool = artifact.facts["symmetric"]
        self.weighted: bool = artifact.facts["weighted"]
        self.grid: tuple[int, int] = tuple(artifact.parameters["grid"])
        self.permutation: str = artifact.parameters["permutation"]
        self.row_order = _order(artifact.facts["row_order"])
        self.column_order = _order(artifact.facts["column_order"])
        self._stored = stored_variants(symmetric=self.symmetric, double=self.permutation == "double")

    def __repr__(self) -> str:
        return f"GridShards({self.grid[0]} x {self.grid[1]}, {self.num_vertices:,} vertices, {self.permutation})"

    def window(self, variant: str, rows: Span, columns: Span, counter: ReadCounter | None = None) -> CSR:
        """Rows and columns of a variant, cropped from the blocks that they overlap.

        Peak memory is the window, plus its parts from partly overlapped blocks, plus a chunk.

        Args:
            variant: ``even``, ``odd``, ``even_transposed`` or ``odd_transposed``.
            rows: first row and the one after the last.
            columns: likewise.
            counter: counts the bytes read.

        Returns:
            CSR with local column ids, ``row_offset`` the first row.
        """
        cells = list(self._overlapped(self._stored[variant], rows, columns))
        num_rows, width = rows[1] - rows[0], columns[1] - columns[0]
        counts = np.zeros(num_rows, dtype=np.int64)
        cropped = {}
        for cell in cells:
            here = counts[cell.row_start : cell.row_start + cell.rows[1] - cell.rows[0]]
            indptr = self._array(cell, "indptr", counter).read(cell.rows[0], cell.rows[1] + 1)
            if cell.whole_width:
                here += np.diff(indptr)
            else:
                cropped[cell.path] = self._crop(cell, indptr, here, counter)
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        indices = np.empty(indptr[-1], dtype=index_dtype(width))
        data = np.empty(indptr[-1], dtype=np.float32) if self.weighted else None
        filled = indptr[:-1].copy()
        for cell in cells:
            for piece in self._pieces(cell, cropped, counter):
                _place(piece, cell, filled, indices, data)
        return CSR(rows[0], indptr, indices, data, width)

    def vertex_ids(self, order: str, span: Span) -> NDArray[np.int64]:
        """(span,) graph ids of the vertices at these places of the order ``rows`` or ``columns``."""
        permutation = self.row_order if order == "rows" else self.column_order
        places = np.arange(*span, dtype=np.int64)
        return permutation.inverse(places) if permutation else places

    def vertex_data(self, name: str, order: str, span: Span, counter: ReadCounter | None = None) -> NDArray[Any]:
        """Rows of ``feature``, ``label``, ``split`` or ``degree`` at these places of an order."""
        order = order if self.permutation == "double" else "rows"
        parts = []
        for row in range(self.grid[0]):
            start, stop = split_range(self.num_vertices, self.grid[0], row)
            first, last = max(span[0], start), min(span[1], stop)
            if first < last or (row == 0 and span[0] == span[1]):
                reader = self.artifact.array(f"{order_path(order, row)}/{name}", counter)
                parts.append(reader.read(first - start, last - start) if first < last else reader.read(0, 0))
        return np.concatenate(parts)

    def _array(self, cell: _Cell, name: str, counter: ReadCounter | None) -> ArrayReader:
        return self.artifact.array(f"{cell.path}/{name}", counter)

    def _overlapped(self, variant: str, rows: Span, columns: Span) -> Iterator[_Cell]:
        for row in range(self.grid[0]):
            row_span = split_range(self.num_vertices, self.grid[0], row)
            first, last = max(rows[0], row_span[0]), min(rows[1], row_span[1])
            if first >= last:
                continue
            for column in range(self.grid[1]):
                span = split_range(self.num_vertices, self.grid[1], column)
                left, right = max(columns[0], span[0]), min(columns[1], span[1])
                if left < right:
                    yield _Cell(
                        path=cell_path(variant, row, column),
                        rows=(first - row_span[0], last - row_span[0]),
                        columns=(left - span[0], right - span[0]),
                        width=span[1] - span[0],
                        row_start=first - rows[0],
                        column_shift=span[0] - columns[0],
                    )

    def _chunks(self, cell: _Cell, indptr: NDArray[np.int64], counter: ReadCounter | None) -> Iterator[_Piece]:
        """The cell's entries chunk by chunk, each with the rows that it holds."""
        indices = self._array(cell, "indices", counter)
        data = self._array(cell, "data", counter) if self.weighted else None
        start = int(indptr[0])
        while start < indptr[-1]:
            stop = min(start - start % indices.chunk_rows + indices.chunk_rows, int(indptr[-1]))
            yield _Piece(indptr, start, indices.read(start, stop), data.read(start, stop) if data else None)
            start = stop

    def _crop(
        self, cell: _Cell, indptr: NDArray[np.int64], counts: NDArray[np.int64], counter: ReadCounter | None
    ) -> _Piece:
        """The cell's entries within its columns; adds their number per row to ``counts``."""
        kept_counts = np.zeros(len(indptr) - 1, dtype=np.int64)
        kept, values = [], []
        for piece in self._chunks(cell, indptr, counter):
            mask = (piece.indices >= cell.columns[0]) & (piece.indices < cell.columns[1])
            _count_kept(piece.indptr, piece.start, mask, kept_counts)
            kept.append(piece.indices[mask])
            if piece.data is not None:
                values.append(piece.data[mask])
        counts += kept_counts
        cropped = np.concatenate([[0], np.cumsum(kept_counts)]).astype(np.int64)
        indices = np.concatenate(kept) if kept else np.empty(0, np.int32)
        data = (np.concatenate(values) if values else np.empty(0, np.float32)) if self.weighted else None
        return _Piece(cropped, 0, indices, data)

    def _pieces(self, cell: _Cell, cropped: dict[str, _Piece], counter: ReadCounter | None) -> Iterator[_Piece]:
        if cell.path in cropped:
            yield cropped.pop(cell.path)
            return
        # Read a second time: all cells' pointers together could need more memory than the window.
        indptr = self._array(cell, "indptr", counter).read(cell.rows[0], cell.rows[1] + 1)
        yield from self._chunks(cell, indptr, counter)


@dataclass(frozen=True)
class _Piece:
    """Consecutive entries of a cell: those from number ``start`` on, of rows told by ``indptr``."""

    indptr: NDArray[np.int64]
    start: int
    indices: NDArray[Any]
    data: NDArray[Any] | None


def _order(content: dict[str, Any] | None) -> KeyedPermutation | None:
    return None if content is None else KeyedPermutation.from_json(content)


def _place(
    piece: _Piece, cell: _Cell, filled: NDArray[np.int64], indices: NDArray[Any], data: NDArray[Any] | None
) -> None:
    """Copy a piece's entries behind those that its rows have already."""
    here = filled[cell.row_start : cell.row_start + len(piece.indptr) - 1]
    values = piece.data if piece.data is not None else np.empty(0, np.float32)
    target = data if data is not None else np.empty(0, np.float32)
    _place_entries(piece.indptr, piece.start, piece.indices, values, cell.column_shift, here, indices, target)


@njit(cache=True, nogil=True)
def _first_row(indptr: NDArray[np.int64], entry: int) -> int:
    return int(np.searchsorted(indptr, entry, side="right")) - 1


@njit(cache=True, nogil=True)
def _count_kept(indptr: NDArray[np.int64], start: int, mask: NDArray[np.bool_], counts: NDArray[np.int64]) -> None:
    row = _first_row(indptr, start)
    for k in range(len(mask)):
        while indptr[row + 1] <= start + k:
            row += 1
        counts[row] += mask[k]


@njit(cache=True, nogil=True)
def _place_entries(
    indptr: NDArray[np.int64],
    start: int,
    columns: NDArray[Any],
    values: NDArray[Any],
    shift: int,
    filled: NDArray[np.int64],
    indices: NDArray[Any],
    data: NDArray[Any],
) -> None:
    if len(columns) == 0:
        return
    row = _first_row(indptr, start)
    for k in range(len(columns)):
        while indptr[row + 1] <= start + k:
            row += 1
        indices[filled[row]] = columns[k] + shift
        if len(values):
            data[filled[row]] = values[k]
        filled[row] += 1
