"""Moves a matrix from one layout to another: other axes, other vertices on a rank, or another vertex order.

A layer that adds a vertex's own features to its neighbors' features needs both in one layout. They may differ: with
the double permutation the rows change their order from layer to layer, and ``tensor3d`` rotates its planes.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.comm.exchange import exchange
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.layout.layout import Layout


class VertexOrders(Protocol):
    """The orders of a graph's vertices."""

    num_vertices: int

    def positions(self, order: str, vertex: NDArray[np.int64]) -> NDArray[np.int64]:
        """(len(vertex),) int64 positions of vertices in an order."""
        ...


class _Peer(NamedTuple):
    """The rows that this rank exchanges with a rank of the group. The columns depend on the matrix's width.

    Attributes:
        coordinate: its coordinate in the process grid.
        given: local rows of the source that it needs.
        taken: local rows of the target that it sends.
    """

    coordinate: dict[str, int]
    given: Tensor
    taken: Tensor


class Realignment:
    """The destination rank of each row of this rank, and the positions of arriving rows.

    Every rank takes its entries from the ranks that differ from it only along the source's axes. They hold the
    whole matrix exactly once, including this rank's own piece, which does not count as traffic.
    """

    def __init__(self, source: Layout, target: Layout, orders: VertexOrders) -> None:
        """Find the rows to exchange, without messages except to form the group of ranks. Collective."""
        self._source, self._target = source, target
        grid, axes = source.grid, source.row_axes + source.column_axes
        self._group = grid.group(axes)
        given = _rows_by_block(source, target, orders)
        # A peer sends in the order of the target's rows, so no indices travel with the rows.
        taken = _rows_by_block(target, source, orders, keep_order=True)
        self._peers = [
            _Peer(
                coordinate,
                given[grid.index(target.row_axes, coordinate)],
                taken[grid.index(source.row_axes, coordinate)],
            )
            for coordinate in grid.members(axes)
        ]

    def move(self, features: Tensor, dim: int, kind: Kind) -> Tensor:
        """This rank's piece of the matrix in the target's layout. Collective.

        Args:
            features: (num_rows, columns held) of the source's layout.
            dim: width of the whole matrix.

        Returns:
            (num_rows, columns held) of the target's layout, a new tensor.
        """
        with self._group.traffic.timing(kind, self._group):
            return self._move(features, dim, kind)

    def _move(self, features: Tensor, dim: int, kind: Kind) -> Tensor:
        columns = self._target.columns(dim)
        place, dtype = self._target.place, features.dtype
        result = place.empty((self._target.num_rows, columns.stop - columns.start), dtype)
        arriving, packed = [], []
        theirs = [_common(columns, self._source.columns(dim, peer.coordinate)) for peer in self._peers]
        for peer, there in zip(self._peers, theirs, strict=True):
            arriving.append(place.empty((len(peer.taken), there.stop - there.start), dtype))
        held = self._source.columns(dim)
        # This rank is one of its own peers, so rows that stay take the same path as the others.
        for peer in self._peers:
            here = _shifted(_common(held, self._target.columns(dim, peer.coordinate)), held.start)
            packed.append(place.empty((len(peer.given), here.stop - here.start), dtype))
            torch.index_select(features[:, here], 0, peer.given, out=packed[-1])
        exchange(self._group, packed, arriving, kind)
        for peer, there, values in zip(self._peers, theirs, arriving, strict=True):
            result[peer.taken, _shifted(there, columns.start)] = values
        return result


def _rows_by_block(here: Layout, there: Layout, orders: VertexOrders, *, keep_order: bool = False) -> list[Tensor]:
    """Local rows of ``here``, grouped by the block of rows of ``there`` that contains their vertices.

    Args:
        keep_order: sort the rows of a block as in ``here`` instead of as in ``there``.
    """
    n, num_blocks = orders.num_vertices, here.grid.size(there.row_axes)
    # In the same order, the layout's rows are a range of positions, and no ids need translating.
    if here.order == there.order:
        position = np.arange(*here.grid.span(n, here.row_axes), dtype=np.int64)
    else:
        position = orders.positions(there.order, here.vertex)
    # Inverse of block b = b*n//num_blocks to (b+1)*n//num_blocks. Positions are int64, because the product with the
    # number of blocks exceeds 2^31 long before n does.
    block = ((position + 1) * num_blocks - 1) // max(n, 1)
    by_block = np.argsort(block if keep_order else position, kind="stable")
    bounds = np.searchsorted(block[by_block], np.arange(1, num_blocks))
    return [here.place.from_numpy(rows) for rows in np.split(by_block, bounds)]


def _common(first: slice, second: slice) -> slice:
    """The intersection of two ranges of columns, which may be empty."""
    start = max(first.start, second.start)
    return slice(start, max(start, min(first.stop, second.stop)))


def _shifted(columns: slice, start: int) -> slice:
    """Columns of the whole matrix, numbered from the first column of a piece."""
    return slice(columns.start - start, columns.stop - start)


class Realigner:
    """Moves matrices between the layouts of a grid; prepares each pair of layouts once."""

    def __init__(self, orders: VertexOrders) -> None:
        self._orders = orders
        self._prepared: dict[tuple[Any, Any], Realignment] = {}

    def align(self, features: Tensor, source: Layout, target: Layout, dim: int) -> Tensor:
        """A matrix of width ``dim`` in another layout; differentiable. Collective, forward and backward.

        Free if both layouts are the same.

        Args:
            features: (num_rows, columns held) of ``source``.

        Returns:
            (num_rows, columns held) of ``target``.
        """
        if source.key == target.key:
            return features
        result: Tensor = _Align.apply(features, self, source, target, dim)  # type: ignore[no-untyped-call]
        return result

    def move(self, features: Tensor, source: Layout, target: Layout, dim: int, kind: Kind) -> Tensor:
        """Like :meth:`align`, without a gradient. Collective."""
        # The same pairs recur in every epoch, and preparing one sorts the rows and forms a group of ranks.
        if (source.key, target.key) not in self._prepared:
            self._prepared[source.key, target.key] = Realignment(source, target, self._orders)
        return self._prepared[source.key, target.key].move(features, dim, kind)


class _Align(torch.autograd.Function):
    """A permutation of the entries over the ranks, so the adjoint is the move in the other direction."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, realigner: Realigner, source: Layout, target: Layout, dim: int) -> Tensor:
        ctx.way_back = realigner, target, source, dim
        return realigner.move(features.detach(), source, target, dim, Kind.ALIGN_FORWARD)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        realigner, source, target, dim = ctx.way_back
        return realigner.move(gradient, source, target, dim, Kind.ALIGN_BACKWARD), None, None, None, None
