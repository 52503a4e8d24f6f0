"""The rows of a sparse matrix in the form that the kernels read.

One description, a list of rows with their ranges of entries, covers a whole matrix (CSR), a matrix with mostly empty
rows (doubly compressed rows: Buluc, Gilbert, "On the Representation and Multiplication of Hypersparse Matrices", IPDPS
2008), and a subset of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.csr import CSR, index_dtype
from gnnloom.trainer.place.arrays import as_array, tensor_dtype
from gnnloom.trainer.place.contract import SparseRows
from gnnloom.trainer.place.place import Place

#: A matrix with at most this share of non-empty rows is doubly compressed.
_SPARSE_ROWS = 0.5


def listed_rows(matrix: CSR) -> SparseRows:
    """The rows of a matrix, whose memory they share; only the non-empty ones if they are at most half."""
    begin, end = matrix.indptr[:-1], matrix.indptr[1:]
    rows = SparseRows(begin, end, None, matrix.indices, matrix.data, matrix.num_rows, matrix.num_columns)
    has_entries = end > begin
    if np.count_nonzero(has_entries) > _SPARSE_ROWS * matrix.num_rows or matrix.num_rows == 0:
        return rows
    occupied = np.flatnonzero(has_entries)
    # The rows in between are empty, so each ends where the next one begins: one array holds both.
    offsets = np.append(begin[occupied], matrix.nnz)
    return replace(rows, begin=offsets[:-1], end=offsets[1:], target=occupied)


def listed_entries(
    rows: NDArray[Any], indices: NDArray[Any], data: NDArray[Any] | None, num_rows: int, num_columns: int
) -> SparseRows:
    """Rows from entries that are given one by one; shares columns and weights.

    Args:
        rows: (nnz,) the row of every entry, ascending.
    """
    # The work is proportional to the entries, not to the rows.
    begins = np.flatnonzero(rows[1:] != rows[:-1]) + 1
    offsets = np.concatenate([[0], begins, [len(rows)]]) if len(rows) else np.zeros(1, np.int64)
    target = rows[offsets[:-1]].astype(np.int64)
    return SparseRows(offsets[:-1], offsets[1:], target, indices, data, num_rows, num_columns)


@dataclass(frozen=True)
class PackedRows:
    """All entries of a matrix in the form that ranks send: in tensors whose lengths follow from its shape and nonzeros.

    Attributes:
        rows: (num_rows,) entries of every row, or (nnz,) the row of every entry (``lists_entries``), whichever is
            shorter for the sent matrices; int32 or int64.
        indices: (nnz,) int32 or int64 columns of the entries, ascending within a row.
        data: (nnz,) weights of the entries; None if all are 1.
    """

    rows: Tensor
    indices: Tensor
    data: Tensor | None
    num_rows: int
    num_columns: int
    lists_entries: bool

    @classmethod
    def of(cls, given: SparseRows, place: Place, *, lists_entries: bool) -> PackedRows:
        """Pack a matrix whose entries follow each other; shares columns and weights where the place shares arrays."""
        counts, target = given.end - given.begin, given.target
        if lists_entries:
            listed = np.arange(given.num_rows) if target is None else target
            rows = np.repeat(listed.astype(index_dtype(given.num_rows)), counts)
        else:
            rows = np.zeros(given.num_rows, index_dtype(given.num_columns))
            rows[slice(None) if target is None else target] = counts
        data = None if given.data is None else place.from_numpy(given.data)
        held = place.from_numpy(rows), place.from_numpy(given.indices), data
        return cls(*held, given.num_rows, given.num_columns, lists_entries)

    @classmethod
    def empty(
        cls, nnz: int, num_rows: int, num_columns: int, place: Place, *, weighted: bool, lists_entries: bool
    ) -> PackedRows:
        """Buffers for a packed matrix of this shape and number of entries."""

        def ids(count: int, below: int) -> Tensor:
            return place.empty((count,), tensor_dtype(index_dtype(below)))

        rows = ids(nnz, num_rows) if lists_entries else ids(num_rows, num_columns)
        data = place.empty((nnz,), place.sum_dtype) if weighted else None
        return cls(rows, ids(nnz, num_columns), data, num_rows, num_columns, lists_entries)

    @property
    def tensors(self) -> list[Tensor]:
        """Tensors to send."""
        return [self.rows, self.indices] + ([] if self.data is None else [self.data])

    def unpacked(self) -> SparseRows:
        """The rows, ready to be multiplied; shares columns and weights. Rows without entries are left out if listed."""
        shape = self.num_rows, self.num_columns
        rows, indices, data = (
            as_array(self.rows),
            as_array(self.indices),
            None if self.data is None else as_array(self.data),
        )
        if self.lists_entries:
            return listed_entries(rows, indices, data, *shape)
        indptr = np.zeros(self.num_rows + 1, np.int64)
        np.cumsum(rows, out=indptr[1:])
        return listed_rows(CSR(0, indptr, indices, data, self.num_columns))


def listed_columns(matrix: CSR, parts: Sequence[slice]) -> list[SparseRows]:
    """For every range of columns, the rows with entries there; they share the memory of the matrix.

    Args:
        matrix: every row has its columns in ascending order, so the columns of a range follow each other.
        parts: one range after the other, from the first column to the last.
    """
    owner = np.searchsorted([part.stop for part in parts], matrix.indices, side="right")
    row = np.repeat(np.arange(matrix.num_rows), np.diff(matrix.indptr))
    begins = np.ones(matrix.nnz, bool)
    begins[1:] = (owner[1:] != owner[:-1]) | (row[1:] != row[:-1])
    begin = np.flatnonzero(begins)
    end, owner, row = np.append(begin[1:], matrix.nnz), owner[begin], row[begin]
    order = np.argsort(owner, kind="stable")
    found = np.split(order, np.searchsorted(owner[order], np.arange(1, len(parts))))
    shape = matrix.num_rows, matrix.num_columns
    return [SparseRows(begin[each], end[each], row[each], matrix.indices, matrix.data, *shape) for each in found]
