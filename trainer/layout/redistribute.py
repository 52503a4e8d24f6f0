"""Redistributes rows: from a layout's order to the order of the vertices, and between whole rows and columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.comm.exchange import BlockExchange, exchange
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.layout.layout import Layout


class VertexOrder:
    """Brings the rows of a matrix into the order of the vertices, chunk by chunk."""

    def __init__(self, layout: Layout, num_vertices: int, kind: Kind) -> None:
        """Prepare for matrices of ``layout``. Communicates nothing.

        Args:
            num_vertices: number of rows of the whole matrix.
            kind: kind of traffic of the exchanges.
        """
        self._comm, self._place, self._kind = layout.grid.comm, layout.place, kind
        # Among the ranks with the same rows, one sends them.
        vertex = layout.vertex if layout.speaks_for_rows else layout.vertex[:0]
        # The vertices of a rank mostly ascend already: neither they nor their rows are then copied.
        order = None if bool((vertex[1:] > vertex[:-1]).all()) else np.argsort(vertex)
        self._order = None if order is None else self._place.from_numpy(order)
        self._vertex = vertex if order is None else vertex[order]
        self.num_vertices = num_vertices

    def chunks(self, rows: Tensor, chunk_rows: int) -> Iterator[tuple[int, Tensor]]:
        """The chunks that this rank writes. Collective.

        Each rank gets one chunk at a time; a rank that keeps the chunks holds them all.

        Chunk c belongs to rank c mod P. Every rank takes part in every round, even without its own chunk.

        Args:
            rows: (num_rows, ...) whole rows of the layout.
            chunk_rows: rows per chunk.

        Yields:
            The first vertex of a chunk, and its (at most chunk_rows, ...) rows.
        """
        # One chunk per rank and round, so all ranks write at the same time.
        round_rows = self._comm.size * chunk_rows
        for first in range(0, self.num_vertices, round_rows):
            bounds = np.minimum(first + chunk_rows * np.arange(self._comm.size + 1), self.num_vertices)
            chunk = self._exchange(rows, bounds)
            if len(chunk):
                yield int(bounds[self._comm.rank]), chunk

    def _exchange(self, rows: Tensor, bounds: NDArray[np.int64]) -> Tensor:
        """Send every rank its vertices between the bounds; returns this rank's chunk. Collective."""
        offset = np.searchsorted(self._vertex, bounds)
        first, last = int(offset[0]), int(offset[-1])
        # Sorted by vertex, the rows of every chunk are a slice. Only the rows of a round are copied.
        order = self._order
        sorted_rows = rows[first:last].contiguous() if order is None else rows.index_select(0, order[first:last])
        if self._comm.size == 1:
            return sorted_rows
        blocks = BlockExchange(self._comm, np.diff(offset), self._place, self._kind)
        vertex = self._place.from_numpy(self._vertex)[first:last]
        # The caller keeps chunks while it exchanges others, so their memory is not the workspace's.
        ids, values = (
            blocks.forth(each, out=self._place.lasting((int(blocks.arriving.sum()), *each.shape[1:]), each.dtype))
            for each in (vertex, sorted_rows)
        )
        # Arriving rows are sorted per sender only; the ids place them, and cover the chunk exactly once.
        chunk = self._place.lasting(values.shape, values.dtype)
        chunk[ids - int(bounds[self._comm.rank])] = values
        return chunk


def whole_rows(piece: Tensor, layout: Layout, dim: int, kind: Kind) -> Tensor:
    """Assemble whole rows from the columns that the ranks hold. Collective.

    Args:
        piece: (num_rows, columns held) of ``layout``.

    Returns:
        (num_rows, dim); ``piece`` itself if its rank holds all columns.
    """
    if layout.column_group.size == 1:
        return piece
    # An all-gather concatenates rows, so the columns are gathered as rows of the transpose.
    return layout.column_group.all_gather(piece.T.contiguous(), layout.widths(dim), kind).T.contiguous()


def split_rows(rows: Tensor, layout: Layout) -> Tensor:
    """From whole rows, each on one rank of a column group, to this rank's columns of all rows. Collective.

    Args:
        rows: (own rows, dim); concatenated over the group's ranks, they are the rows of ``layout``.

    Returns:
        (num_rows, columns held) of the layout.
    """
    group, dim = layout.column_group, rows.shape[1]
    if group.size == 1:
        return rows
    sizes = group.gather_numbers([len(rows)])[:, 0].astype(int).tolist()
    bounds = np.cumsum([0, *layout.widths(dim)]).tolist()
    result = layout.place.lasting((sum(sizes), layout.widths(dim)[group.rank]), rows.dtype)
    sent = [rows[:, start:stop].contiguous() for start, stop in pairwise(bounds)]
    exchange(group, sent, torch.split(result, sizes), Kind.SETUP)
    return result
