"""Rows of a graph for any vertices: all entries of each row, or some drawn at random."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.kernels import count_below, kernel
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.permutation import GOLDEN, mix
from gnnloom.storage.matrix.random_numbers import below
from gnnloom.storage.matrix.removal import excluded_entries
from gnnloom.storage.neighbor_samplers.kind import ALL


def _no_entries() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Draw:
    """The entries to draw from each row.

    What a vertex draws depends on the stream and the vertex only, so a process that has its row can draw for others.

    Attributes:
        stream: random stream of a layer of a batch.
        fanout: entries to draw from each row: ``ALL``, or 0 or more; or (num_rows,) int64, a number for each row.
        replace: draw with replacement; a row then has ``fanout`` entries even if the vertex has fewer neighbors.
        excluded: (num_excluded,) int64 positions of entries to leave out, as if the graph lacked them, ascending.
        joint: stream in which the joint relations to one type divide the fan-out of a vertex; None: the relation has
            the fan-out for itself.
    """

    stream: np.uint64
    fanout: int | NDArray[np.int64]
    replace: bool = False
    excluded: NDArray[np.int64] = field(default_factory=_no_entries)
    joint: np.uint64 | None = None

    @property
    def takes_all(self) -> bool:
        """Whole rows are drawn."""
        return isinstance(self.fanout, int) and self.fanout == ALL

    @property
    def fanouts(self) -> NDArray[np.int64]:
        """(1,) int64 fan-out of all rows, or (num_rows,) a fan-out for each row."""
        return np.atleast_1d(self.fanout)


@dataclass(frozen=True)
class Rows:
    """Drawn rows, in arrays that their receiver may change.

    Attributes:
        indptr: (num_rows + 1,) int64.
        column: (nnz,) int32 or int64 vertices of the graph.
        entry: (nnz,) int64 position of each entry in the graph's matrix.
        row_nnz: (num_rows,) int64 entries of each whole row.
    """

    indptr: NDArray[np.int64]
    column: NDArray[Any]
    entry: NDArray[np.int64]
    row_nnz: NDArray[np.int64]


class GraphView(Protocol):
    """The rows of a matrix, wherever they are: row i lists the vertices that vertex i gathers from.

    Methods may be called from any number of threads.
    """

    @property
    def num_rows(self) -> int:
        """Number of vertices that gather."""
        ...

    @property
    def num_columns(self) -> int:
        """Number of vertices that are gathered from."""
        ...

    def rows(self, vertices: NDArray[np.int64], draw: Draw) -> Rows:
        """Draw the rows of some vertices, (num_rows,) int64."""
        ...

    def lengths(self, vertices: NDArray[np.int64], excluded: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """(num_rows,) int64 entries of the whole rows of some vertices, (num_rows,) int64.

        Args:
            excluded: see :attr:`Draw.excluded`.
        """
        ...

    def weights(self, entry: NDArray[np.int64]) -> NDArray[Any] | None:
        """(num_entries,) weights of some entries; None if the graph has none."""
        ...

    def positions(self, row: NDArray[np.int64], column: NDArray[np.int64]) -> NDArray[np.int64]:
        """(num_found,) int64 positions of entries, for :attr:`Draw.excluded`.

        Args:
            row, column: (num_given,) int64 ends in any order; pairs that are not entries are left out.
        """
        ...


@dataclass(frozen=True)
class MatrixView:
    """The rows of a matrix in memory or mapped, from which each vertex draws for itself; see :class:`GraphView`."""

    matrix: CSR

    @property
    def num_rows(self) -> int:
        return self.matrix.num_rows

    @property
    def num_columns(self) -> int:
        return self.matrix.num_columns

    def rows(self, vertices: NDArray[np.int64], draw: Draw) -> Rows:
        """See :meth:`GraphView.rows`."""
        how = draw.fanouts, draw.replace, draw.excluded
        indptr, row_nnz, entry = _draw_entries(draw.stream, self.matrix.indptr, vertices, *how)
        return Rows(indptr, columns_of(self.matrix.indices, entry), entry, row_nnz)

    def lengths(self, vertices: NDArray[np.int64], excluded: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """See :meth:`GraphView.lengths`."""
        indptr = self.matrix.indptr
        if excluded is None or not len(excluded):
            return indptr[vertices + 1] - indptr[vertices]
        return drawn_lengths(indptr, vertices, np.array([ALL]), False, excluded)[1]

    def weights(self, entry: NDArray[np.int64]) -> NDArray[Any] | None:
        """See :meth:`GraphView.weights`."""
        return None if self.matrix.data is None else self.matrix.data[entry]

    def positions(self, row: NDArray[np.int64], column: NDArray[np.int64]) -> NDArray[np.int64]:
        """See :meth:`GraphView.positions`."""
        return excluded_entries(self.matrix, row, column)


@kernel
def columns_of(indices: NDArray[Any], entry: NDArray[np.int64]) -> NDArray[Any]:
    """Columns of drawn entries; a loop in which the processor waits for many scattered reads at the same time."""
    columns = np.empty(len(entry), indices.dtype)
    for k in range(len(entry)):
        columns[k] = indices[entry[k]]
    return columns


@kernel
def drawn_lengths(
    indptr: NDArray[np.int64],
    vertices: NDArray[np.int64],
    fanout: NDArray[np.int64],
    replace: bool,
    excluded: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row pointers of the drawn rows, and the entries of each whole row, without what is excluded.

    Args:
        fanout: see :attr:`Draw.fanouts`.
    """
    count = len(vertices)
    row_nnz, out_indptr = np.empty(count, np.int64), np.zeros(count + 1, np.int64)
    for row in range(count):
        size = indptr[vertices[row] + 1] - indptr[vertices[row]]
        if len(excluded):
            size -= len(within(excluded, indptr[vertices[row]], indptr[vertices[row] + 1]))
        row_nnz[row] = size
        wanted = fanout[min(row, len(fanout) - 1)]
        takes_all = wanted == ALL or size == 0 or (size <= wanted and not replace)
        out_indptr[row + 1] = out_indptr[row] + (size if takes_all else wanted)
    return out_indptr, row_nnz


@kernel
def _draw_entries(
    key: np.uint64,
    indptr: NDArray[np.int64],
    vertices: NDArray[np.int64],
    fanout: NDArray[np.int64],
    replace: bool,
    excluded: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return what :func:`drawn_lengths` does, and the positions that are drawn."""
    out_indptr, row_nnz = drawn_lengths(indptr, vertices, fanout, replace, excluded)
    entry = np.empty(out_indptr[-1], np.int64)
    for row in range(len(vertices)):
        start, size = indptr[vertices[row]], row_nnz[row]
        drawn = entry[out_indptr[row] : out_indptr[row + 1]]
        # A stream of its own for every vertex: who draws for it, and for what others, does not matter.
        stream = mix(key + (np.uint64(vertices[row]) + np.uint64(1)) * GOLDEN)
        wanted = fanout[min(row, len(fanout) - 1)]
        if wanted == ALL or (size <= wanted and not replace):
            for k in range(size):
                drawn[k] = start + k
        elif replace:
            for k in range(len(drawn)):
                drawn[k] = start + below(stream, k, size)
        else:
            _choose(stream, start, size, drawn)
        if len(excluded):
            skip(within(excluded, start, indptr[vertices[row] + 1]), drawn)
    return out_indptr, row_nnz, entry


@kernel
def divided(
    key: np.uint64, vertices: NDArray[np.int64], lengths: NDArray[np.int64], fanout: int, replace: bool
) -> NDArray[np.int64]:
    """Number of the entries of each row that fall to each relation if a vertex draws from the union of its rows.

    Args:
        lengths: (num_relations, num_rows) entries of the whole rows.
        fanout: entries that a vertex draws, 0 or more.

    Returns:
        (num_relations, num_rows) int64.
    """
    found, total = np.zeros(lengths.shape, np.int64), np.zeros(len(vertices), np.int64)
    longest = 0
    for row in range(len(vertices)):
        for relation in range(len(lengths)):
            total[row] += lengths[relation, row]
        longest = max(longest, total[row])
    drawn = np.empty(fanout if replace else min(fanout, longest), np.int64)
    for row in range(len(vertices)):
        if total[row] == 0 or (total[row] <= fanout and not replace):
            found[:, row] = lengths[:, row]
            continue
        stream = mix(key + (np.uint64(vertices[row]) + np.uint64(1)) * GOLDEN)
        if replace:
            for k in range(fanout):
                drawn[k] = below(stream, k, total[row])
        else:
            _choose(stream, 0, total[row], drawn)
        for k in range(fanout):
            relation, place = 0, drawn[k]
            while place >= lengths[relation, row]:
                place -= lengths[relation, row]
                relation += 1
            found[relation, row] += 1
    return found


@kernel
def within(excluded: NDArray[np.int64], start: int, stop: int) -> NDArray[np.int64]:
    """The excluded positions from ``start`` to ``stop``."""
    return excluded[count_below(excluded, start) : count_below(excluded, stop)]


@kernel
def skip(excluded: NDArray[np.int64], drawn: NDArray[np.int64]) -> None:
    """Turn positions in a row without its excluded entries into positions in the whole row."""
    for k in range(len(drawn)):
        # The number of excluded entries before it is the number of excluded entries with at most this number of other
        # entries before them.
        low, high = 0, len(excluded)
        while low < high:
            middle = (low + high) // 2
            if excluded[middle] - middle <= drawn[k]:
                low = middle + 1
            else:
                high = middle
        drawn[k] += low


@kernel
def _choose(stream: np.uint64, start: int, size: int, drawn: NDArray[np.int64]) -> None:
    """Fill ``drawn`` with different numbers of start..start+size-1, ascending; every set is equally likely.

    Floyd's algorithm (Bentley, Floyd, CACM 30(9), 1987), which takes one random number for each.
    """
    fanout = len(drawn)
    for k in range(fanout):
        last = start + size - fanout + k
        number = start + below(stream, k, size - fanout + k + 1)
        # The drawn numbers stay sorted, so one pass finds both whether a number is new and where it goes.
        place = k
        while place > 0 and drawn[place - 1] > number:
            place -= 1
        if place > 0 and drawn[place - 1] == number:
            # ``last`` is above all earlier ones, which were drawn from smaller ranges.
            drawn[k] = last
        else:
            for other in range(k, place, -1):
                drawn[other] = drawn[other - 1]
            drawn[place] = number
