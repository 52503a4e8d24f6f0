"""The subgraph that some vertices induce, from their rows only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.kernels import copy_elements, count_below, kernel
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.sampling.layers.vertex_table import build_table, find_slot, hashed, slot_bits

#: A row with this many times more nonzeros than there are vertices is searched for every vertex instead of scanned.
_LONG = 64
#: Bits of the filter per slot of the table, as a power of two: one nonzero in 16 or more passes without belonging.
_FILTER = 3


def induce(matrix: CSR, vertices: NDArray[np.int64]) -> tuple[CSR, NDArray[np.int64], NDArray[np.int64]]:
    """Restrict a square matrix to some of its rows and columns.

    Args:
        matrix: all rows.
        vertices: (num_vertices,) int64, ascending, fewer than 2^31.

    Returns:
        The matrix A[vertices][:, vertices]; the (nnz,) int64 positions of its nonzeros in ``matrix``; and the
        (num_vertices,) int64 nonzeros of the vertices' rows in ``matrix``.

        Time and memory are in proportion to these rows, whatever the size of the graph.
    """
    indptr, columns, entry, row_nnz = _induced(matrix.indptr, matrix.indices, vertices)
    data = None if matrix.data is None else matrix.data[entry]
    return CSR(0, indptr, columns, data, len(vertices)), entry, row_nnz


@kernel
def _induced(
    indptr: NDArray[np.int64], indices: NDArray[Any], vertices: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    count = len(vertices)
    bits = slot_bits(count)
    slots = build_table(vertices, count, bits)
    # Most columns are not in the sample. A bitmap of the vertices' hashes, small enough for the fastest cache, drops
    # them before they are looked up.
    is_hashed = np.zeros(1 << (bits + _FILTER - 3), np.uint8)
    for vertex in vertices:
        place = hashed(int(vertex), bits + _FILTER)
        is_hashed[place >> 3] |= np.uint8(1 << (place & 7))
    row_nnz = np.empty(count, np.int64)
    out_indptr = np.zeros(count + 1, np.int64)
    columns, entry = np.empty(16 * count, np.int32), np.empty(16 * count, np.int64)
    end = 0
    for row in range(count):
        start, stop = indptr[vertices[row]], indptr[vertices[row] + 1]
        row_nnz[row] = stop - start
        if end + min(stop - start, count) > len(columns):
            columns, entry = _grown(columns, entry, end, 2 * len(columns) + count)
        if stop - start > _LONG * count:
            end = _search_row(indices, start, stop, vertices, columns, entry, end)
        else:
            for position in range(start, stop):
                vertex = int(indices[position])
                place = hashed(vertex, bits + _FILTER)
                if is_hashed[place >> 3] >> np.uint8(place & 7) & 1:
                    local = slots[find_slot(slots, bits, vertices, vertex)]
                    if local >= 0:
                        columns[end], entry[end] = local, position
                        end += 1
        out_indptr[row + 1] = end
    return out_indptr, columns[:end].copy(), entry[:end].copy(), row_nnz


@kernel
def _search_row(
    indices: NDArray[Any],
    start: int,
    stop: int,
    vertices: NDArray[np.int64],
    columns: NDArray[np.int32],
    entry: NDArray[np.int64],
    end: int,
) -> int:
    for local in range(len(vertices)):
        # The vertices ascend, so the search for a vertex begins where the previous search ended.
        start += count_below(indices[start:stop], vertices[local])
        if start < stop and indices[start] == vertices[local]:
            columns[end], entry[end] = local, start
            end += 1
    return end


@kernel
def _grown(
    columns: NDArray[np.int32], entry: NDArray[np.int64], end: int, size: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    new_columns, new_entry = np.empty(size, np.int32), np.empty(size, np.int64)
    copy_elements(columns[:end], new_columns)
    copy_elements(entry[:end], new_entry)
    return new_columns, new_entry


def restrict(
    matrix: CSR,
    rows: NDArray[np.int64],
    batch: int,
    column_batch: NDArray[np.int64],
    column_position: NDArray[np.int64],
    num_columns: int,
) -> CSR:
    """Restrict a matrix to some of its rows, and to the columns of one batch of a division of all columns.

    Args:
        rows: (num_rows,) int64, ascending.
        column_batch: (columns of the matrix,) int64 batch of each.
        column_position: (columns of the matrix,) int64 number of each in its batch.
        num_columns: columns in the batch.

    Returns:
        (num_rows, num_columns), with the columns numbered in the batch.
    """
    indptr, columns, entry = _restricted(matrix.indptr, matrix.indices, rows, batch, column_batch, column_position)
    return CSR(0, indptr, columns, None if matrix.data is None else matrix.data[entry], num_columns)


@kernel
def _restricted(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    rows: NDArray[np.int64],
    batch: int,
    column_batch: NDArray[np.int64],
    column_position: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    out_indptr = np.zeros(len(rows) + 1, np.int64)
    for row in range(len(rows)):
        count = 0
        for position in range(indptr[rows[row]], indptr[rows[row] + 1]):
            count += column_batch[indices[position]] == batch
        out_indptr[row + 1] = out_indptr[row] + count
    columns, entry = np.empty(out_indptr[-1], np.int32), np.empty(out_indptr[-1], np.int64)
    end = 0
    for row in rows:
        for position in range(indptr[row], indptr[row + 1]):
            column = indices[position]
            if column_batch[column] == batch:
                columns[end], entry[end] = column_position[column], position
                end += 1
    return out_indptr, columns, entry
