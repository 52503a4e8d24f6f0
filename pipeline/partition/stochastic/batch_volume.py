"""The exact volume of a mini-batch: the rows that its induced subgraph needs from other parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.artifacts.graph import Graph


def batch_volume(matrix: Graph, part: NDArray[np.int32], parts: int, batch: NDArray[np.bool_]) -> int:
    """Count the rows sent for the product with the transpose of ``matrix``, on the subgraph that a batch induces.

    Args:
        matrix: its row j holds the vertices that need row j of H.
        part: (num_vertices,) int32.
        parts: number of parts P.
        batch: (num_vertices,) whether each vertex is drawn.
    """
    last_row = np.full(parts, -1, dtype=np.int64)
    sent = 0
    for block in matrix.blocks():
        sent += _count_batch(block.row_offset, block.indptr, block.indices, part, batch, last_row)
    return sent


@njit(cache=True, nogil=True)
def _count_batch(
    first_row: int,
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    part: NDArray[np.int32],
    batch: NDArray[np.bool_],
    last_row: NDArray[np.int64],
) -> int:
    """Count, for each drawn row, the other parts with a drawn vertex that needs it.

    Args:
        last_row: (num_parts,) int64 last row that was sent to each part, or -1; changed.
    """
    sent = 0
    # ``last_row`` finds repeated parts without clearing a set for each row; the own part counts as seen.
    for row in range(len(indptr) - 1):
        vertex = first_row + row
        # Only drawn vertices take part, as owners and as receivers.
        if not batch[vertex]:
            continue
        last_row[part[vertex]] = vertex
        for position in range(indptr[row], indptr[row + 1]):
            column = indices[position]
            if batch[column] and last_row[part[column]] != vertex:
                last_row[part[column]] = vertex
                sent += 1
    return sent
