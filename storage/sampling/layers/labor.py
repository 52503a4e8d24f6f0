"""``labor``: vertices that share their random numbers draw the same neighbors where they can.

Balin, Catalyurek, "Layer-Neighbor Sampling: Defusing Neighborhood Explosion in GNNs" (NeurIPS 2023), section 3, with
equal probabilities of all neighbors (LABOR-0). Drawn by sequential Poisson sampling (Ohlsson, "Sequential Poisson
Sampling", J. Official Statistics 14(2), 1998): of a row with more entries than the fan-out, the fan-out's number of
entries, whose vertices have the least random numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.permutation import GOLDEN, mix
from gnnloom.storage.sampling.layers.graph_view import Draw, MatrixView, Rows, columns_of, drawn_lengths, within


class LaborView(MatrixView):
    """The rows of a matrix; see :class:`~gnnloom.storage.sampling.layers.graph_view.GraphView`.

    A draw reads the whole rows, as the numbers belong to the columns; it keeps no more than what it draws.
    """

    def rows(self, vertices: NDArray[np.int64], draw: Draw) -> Rows:
        """See :meth:`GraphView.rows`."""
        indptr, indices = self.matrix.indptr, self.matrix.indices
        # Never with replacement.
        out_indptr, row_nnz = drawn_lengths(indptr, vertices, draw.fanouts, False, draw.excluded)
        entry = _draw_least(draw.stream, indptr, indices, vertices, out_indptr, draw.excluded)
        return Rows(out_indptr, columns_of(indices, entry), entry, row_nnz)


@kernel
def _draw_least(
    key: np.uint64,
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    vertices: NDArray[np.int64],
    out_indptr: NDArray[np.int64],
    excluded: NDArray[np.int64],
) -> NDArray[np.int64]:
    """(num_drawn,) int64 positions of the entries of each row whose columns have the least random numbers."""
    entry, longest = np.empty(out_indptr[-1], np.int64), 0
    for row in range(len(vertices)):
        longest = max(longest, out_indptr[row + 1] - out_indptr[row])
    numbers = np.empty(longest, np.uint64)
    for row in range(len(vertices)):
        start, stop = indptr[vertices[row]], indptr[vertices[row] + 1]
        drawn = entry[out_indptr[row] : out_indptr[row + 1]]
        lacking = within(excluded, start, stop)
        takes_all = len(drawn) == stop - start - len(lacking)
        count, passed = 0, 0
        for position in range(start, stop):
            if passed < len(lacking) and lacking[passed] == position:
                passed += 1
            elif takes_all:
                drawn[count] = position
                count += 1
            elif len(drawn):
                number = mix(key + (np.uint64(indices[position]) + np.uint64(1)) * GOLDEN)
                if count < len(drawn):
                    _rise(numbers, drawn, count, number, position)
                    count += 1
                elif number < numbers[0]:
                    _sink(numbers, drawn, number, position)
    return entry


# Numbers and positions are a heap with the largest number first (Williams, CACM 7(6), 1964, algorithm 232).


@kernel
def _rise(
    numbers: NDArray[np.uint64], positions: NDArray[np.int64], count: int, number: np.uint64, position: int
) -> None:
    """Add a number to the heap of the first ``count``."""
    place = count
    while place > 0 and numbers[(place - 1) // 2] < number:
        above = (place - 1) // 2
        numbers[place], positions[place] = numbers[above], positions[above]
        place = above
    numbers[place], positions[place] = number, position


@kernel
def _sink(numbers: NDArray[np.uint64], positions: NDArray[np.int64], number: np.uint64, position: int) -> None:
    """Replace the largest number of a whole heap by a smaller one."""
    count, place, below = len(positions), 0, 1
    while below < count:
        if below + 1 < count and numbers[below + 1] > numbers[below]:
            below += 1
        if numbers[below] <= number:
            break
        numbers[place], positions[place] = numbers[below], positions[below]
        place, below = below, 2 * below + 1
    numbers[place], positions[place] = number, position
