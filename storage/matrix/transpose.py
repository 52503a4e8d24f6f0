"""The transpose of a matrix in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.csr import CSR, index_dtype


def transposed(matrix: CSR) -> CSR:
    """Transpose a matrix.

    Returns:
        The transpose, with sorted rows. Its column ids count from the first row of ``matrix``, whatever its
        ``row_offset``.
    """
    # A counting sort by column, in O(nnz + num_columns); a comparison sort would also need a second array of keys.
    indptr = np.zeros(matrix.num_columns + 1, np.int64)
    np.cumsum(np.bincount(matrix.indices, minlength=matrix.num_columns), out=indptr[1:])
    indices = np.empty(matrix.nnz, index_dtype(matrix.num_rows))
    # An empty array stands for a pattern: one compiled version serves patterns and float32 weights.
    given = np.empty(0, np.float32) if matrix.data is None else matrix.data
    data = np.empty_like(given)
    _scatter_entries(matrix.indptr, matrix.indices, given, indptr[:-1].copy(), indices, data)
    return CSR(0, indptr, indices, None if matrix.data is None else data, matrix.num_rows)


@kernel
def _scatter_entries(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    given: NDArray[Any],
    position: NDArray[np.int64],
    rows: NDArray[Any],
    data: NDArray[Any],
) -> None:
    # ``position`` is the next free entry of each row of the transpose; visiting rows in order sorts its rows. One
    # thread runs the loop: two threads could take the same free entry.
    for row in range(len(indptr) - 1):
        for entry in range(indptr[row], indptr[row + 1]):
            target = position[indices[entry]]
            position[indices[entry]] = target + 1
            rows[target] = row
            if len(given):
                data[target] = given[entry]
