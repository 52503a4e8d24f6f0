"""Finds the entries of training pairs in windows of the permuted adjacency, on the ranks that multiply by them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.matrix.ranges import Span, split_range
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.data.target_edges import (
    Entries,
    PairSource,
    StateTargets,
    TargetEntries,
    Targets,
    read_entries,
    routed,
)
from gnnloom.trainer.data.vertex_directory import VertexDirectory
from gnnloom.trainer.operators.grid_adjacency import GridAdjacency
from gnnloom.trainer.place.place import Place


@dataclass(frozen=True)
class Window:
    """Some rows and columns of the adjacency, or of its transpose, by which one rank multiplies.

    Attributes:
        rows: positions in the order of the product's output.
        columns: ascending ranges of positions in the order of its input, one for each local product.
        orders: names of the orders of rows and columns.
        transposed: the entries belong to the transpose, which is another matrix.
        row_blocks: ranges of rows that are multiplied one after the other.
    """

    rows: Span
    columns: tuple[Span, ...]
    orders: tuple[str, str]
    transposed: bool = False
    row_blocks: int = 1

    def facts(self) -> tuple[int, int, int, int, int]:
        """First and last row and column, and a number that represents everything else."""
        first, last = (self.columns[0][0], self.columns[-1][1]) if self.columns else (0, 0)
        return *self.rows, first, last, zlib.crc32(repr(self).encode())

    def numbered(self, entries: Entries) -> TargetEntries:
        """Entries by position; entries in the window get the numbers of its blocks."""
        row = entries.row - self.rows[0]
        row_block, row_start, _ = _within(row, self._row_spans)
        column_block, column_start, is_inside = _within(entries.column, self.columns)
        inside = entries._replace(row=row - row_start, column=entries.column - column_start).take(is_inside)
        block = row_block * len(self.columns) + column_block
        return TargetEntries(inside, block[is_inside], self.shapes)

    @property
    def _row_spans(self) -> list[Span]:
        num_rows = self.rows[1] - self.rows[0]
        return [split_range(num_rows, self.row_blocks, number) for number in range(self.row_blocks)]

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Rows and columns of every block."""
        return [(rows[1] - rows[0], columns[1] - columns[0]) for rows in self._row_spans for columns in self.columns]


def _within(
    positions: NDArray[np.int64], spans: Sequence[Span]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """For every position, the number and the beginning of its range, and whether it is in a range."""
    # One more, empty range for positions after all others.
    starts, stops = np.array([*spans, (0, 0)], np.int64).T
    number = np.searchsorted(stops[:-1], positions, side="right")
    return number, starts[number], (number < len(spans)) & (positions >= starts[number])


def grid_targets(
    comm: Communicator,
    source: PairSource,
    adjacency: GridAdjacency,
    windows: Sequence[Window],
    place: Place,
) -> Sequence[Targets]:
    """Send the entries of all pairs to the ranks that have them in a window. Collective.

    Args:
        windows: the same number on every rank.

    Returns:
        The entries of each window, by its blocks; the same object for windows that are equal on all ranks.

    Raises:
        CollectiveError: a pair has no vertex of the graph, or could not be read.
    """
    return source.targets(
        lambda: _read(comm, source, adjacency, windows, place), lambda state: _stated(state, adjacency, windows, place)
    )


def _read(
    comm: Communicator, source: PairSource, adjacency: GridAdjacency, windows: Sequence[Window], place: Place
) -> Sequence[Targets]:
    weighted = adjacency.shards.weighted
    announced = np.array(comm.gather_numbers([fact for window in windows for fact in window.facts()]), np.int64)
    announced = announced.reshape(comm.size, len(windows), -1)
    # Equal on all ranks, so that all ranks treat the same windows as equal.
    firsts = [
        next(before for before in range(number + 1) if np.array_equal(announced[:, before], announced[:, number]))
        for number in range(len(windows))
    ]
    parts: dict[int, list[Entries]] = {number: [] for number in dict.fromkeys(firsts)}
    orders = AllPositions(comm, adjacency, place)
    for read in read_entries(comm, source, adjacency.num_vertices, weighted=weighted):
        for number, kept in parts.items():
            window = windows[number]
            given = read.transposed if window.transposed else read
            row, column = (
                orders.positions(order, vertex) for order, vertex in zip(window.orders, given[:2], strict=True)
            )
            placed = given._replace(row=row, column=column)
            kept.append(routed(comm, placed, *_receivers(placed, announced[:, number]), place))
    numbered = {
        number: windows[number].numbered(Entries.joined(kept, weighted=weighted)) for number, kept in parts.items()
    }
    return [numbered[first] for first in firsts]


def _stated(
    state: StateTargets, adjacency: GridAdjacency, windows: Sequence[Window], place: Place
) -> Sequence[Targets]:
    """Stated targets for every window, with the entries of the matrix spread evenly."""
    found: dict[Window, Targets] = {}
    for window in windows:
        if window not in found:
            shapes, n = window.shapes, max(1, adjacency.num_vertices)
            shares = [rows * columns / n**2 for rows, columns in shapes]
            found[window] = state(shares, shapes, place, weighted=adjacency.shards.weighted)
    return [found[window] for window in windows]


def _receivers(entries: Entries, bounds: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of the entries for each rank, by rank, and their count per rank.

    Args:
        bounds: (size, 4 or more) int64 first and last row and column of every rank's window.
    """
    order = np.argsort(entries.row, kind="stable")
    edges = np.searchsorted(entries.row[order], bounds[:, :2])
    chosen = []
    for (start, stop), (first, last) in zip(edges.tolist(), bounds[:, 2:4].tolist(), strict=True):
        column = entries.column[order[start:stop]]
        chosen.append(order[start:stop][(column >= first) & (column < last)])
    return np.concatenate(chosen), np.array([len(each) for each in chosen], np.int64)


class AllPositions:
    """Positions of any vertices in the orders of grid shards, for any permutation.

    Attributes:
        num_vertices: number of vertices of the graph.
    """

    def __init__(self, comm: Communicator, adjacency: GridAdjacency, place: Place) -> None:
        """Prepare look-ups. Collective."""
        self._adjacency, self.num_vertices = adjacency, adjacency.num_vertices
        self._directory: VertexDirectory | None = None
        if adjacency.shards.permutation == "partition":
            # Stored by position, so each rank knows a range of positions.
            n, span = adjacency.num_vertices, split_range(adjacency.num_vertices, comm.size, comm.rank)
            self._directory = VertexDirectory(
                comm, n, adjacency.vertex_ids("rows", span), np.arange(*span, dtype=np.int64), place
            )

    def positions(self, order: str, vertex: NDArray[np.int64]) -> NDArray[np.int64]:
        """(num_ids,) int64 positions in an order. Collective."""
        if self._directory is not None:
            return self._directory.find(vertex)
        return self._adjacency.positions(order, vertex)
