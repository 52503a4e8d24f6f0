"""One step of a random walk: from a vertex to one that its row gathers from, never to itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.matrix.random_numbers import below


@njit(cache=True, nogil=True, inline="always")
def num_neighbors(indptr: NDArray[np.int64], loop: NDArray[np.bool_], vertex: int) -> int:
    """Neighbors of a vertex other than itself."""
    return int(indptr[vertex + 1] - indptr[vertex] - loop[vertex])


@njit(cache=True, nogil=True)
def successor(
    key: np.uint64, counter: int, indptr: NDArray[np.int64], indices: NDArray[Any], vertex: int
) -> tuple[int, int]:
    """A uniform neighbor of a vertex that has one other than itself, and the next unused counter."""
    first = indptr[vertex]
    size = indptr[vertex + 1] - first
    # Drawn again if it is the vertex itself, which is at most every other time.
    while True:
        neighbor = int(indices[first + below(key, counter, size)])
        counter += 1
        if neighbor != vertex:
            return neighbor, counter
