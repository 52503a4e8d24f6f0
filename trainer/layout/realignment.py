"""From one layout of a matrix to another: other axes, other vertices on a rank, or another order of them.

A layer adds what a vertex has itself to what its neighbors give it, and the two may lie differently: with
the double permutation the rows change their order from layer to layer, and ``tensor3d`` turns its planes.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.comm.communicator import Kind
from gnnloom.trainer.layout.layout import Layout


class Places(Protocol):
    """The orders of a graph's vertices."""

    num_vertices: int

    def places(self, order: str, vertex: NDArray[np.int64]) -> NDArray[np.int64]:
        """Places of vertices in an order."""
        ...


class _Peer(NamedTuple):
    """A rank that this one gives rows to and takes rows from; of which columns, depends on the width."""

    number: int
    coordinate: dict[str, int]
    given: Tensor
    taken: Tensor


class Realignment:
    """Which rows of this rank go where, and where what arrives belongs.

    Every rank takes what it needs from those ranks that differ from it along the source's axes only: they hold the
    whole matrix once, this rank's own part among it, which is not sent.
    """

    def __init__(self, source: Layout, target: Layout, places: Places) -> None:
        """Find the rows that stay and go; communicates nothing but to form the group of ranks. Collective."""
        self._source, self._target = source, target
        grid, axes = source.grid, source.row_axes + source.column_axes
        self._group = grid.group(axes)
        given = _rows_by_block(source, target, places)
        # What arrives from one rank is in the order of the target's rows.
        taken = _rows_by_block(target, source, places, keep_order=True)
        self._peers = [
            _Peer(
                number,
                coordinate,
                given[grid.index(target.row_axes, coordinate)],
                taken[grid.index(source.row_axes, coordinate)],
            )
            for number, coordinate in enumerate(grid.members(axes))
        ]

    def move(self, features: Tensor, dim: int, kind: Kind) -> Tensor:
        """This rank's part of the matrix in the target's layout. Collective.

        Args:
            features: (num_rows, columns held) of the source's layout.
            dim: columns of the whole matrix.
        """
        with self._group.traffic.timing(kind, self._group):
            return self._move(features, dim, kind)

    def _move(self, features: Tensor, dim: int, kind: Kind) -> Tensor:
        columns = self._target.columns(dim)
        result = features.new_empty(self._target.num_rows, columns.stop - columns.start)
        arriving, requests, packed = [], [], []
        for peer in self._peers:
            there = _common(columns, self._source.columns(dim, peer.coordinate))
            arriving.append((peer.taken, there, features.new_empty(len(peer.taken), there.stop - there.start)))
            requests += self._group.receive(arriving[-1][-1], peer.number)
        held = self._source.columns(dim)
        for peer in self._peers:
            here = _shifted(_common(held, self._target.columns(dim, peer.coordinate)), held.start)
            packed.append(features[:, here].index_select(0, peer.given))
            requests += self._group.send(packed[-1], peer.number, kind)
        self._group.wait(requests)
        for rows, there, values in arriving:
            result[rows, _shifted(there, columns.start)] = values
        return result


def _rows_by_block(here: Layout, there: Layout, places: Places, *, keep_order: bool = False) -> list[Tensor]:
    """Local rows of ``here`` by the block of rows of ``there`` that has their vertices.

    Args:
        keep_order: within a block in their own order, instead of that of ``there``.
    """
    n, parts = places.num_vertices, here.grid.size(there.row_axes)
    if here.order == there.order:
        place = np.arange(*here.grid.span(n, here.row_axes), dtype=np.int64)
    else:
        place = places.places(there.order, here.vertex)
    block = ((place + 1) * parts - 1) // max(n, 1)
    by_block = np.argsort(block if keep_order else place, kind="stable")
    bounds = np.searchsorted(block[by_block], np.arange(1, parts))
    return [torch.from_numpy(rows) for rows in np.split(by_block, bounds)]


def _common(first: slice, second: slice) -> slice:
    start = max(first.start, second.start)
    return slice(start, max(start, min(first.stop, second.stop)))


def _shifted(columns: slice, start: int) -> slice:
    return slice(columns.start - start, columns.stop - start)


class Realigner:
    """Moves matrices between the layouts of a grid; prepares for each pair of layouts once."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._prepared: dict[tuple[Any, Any], Realignment] = {}

    def align(self, features: Tensor, source: Layout, target: Layout, dim: int) -> Tensor:
        """A matrix of width ``dim`` in another layout; differentiable. Collective, forward and backward.

        Costs nothing where both layouts are the same.

        Args:
            features: (num_rows, columns held) of ``source``.
        """
        if source.key == target.key:
            return features
        result: Tensor = _Align.apply(features, self, source, target, dim)  # type: ignore[no-untyped-call]
        return result

    def move(self, features: Tensor, source: Layout, target: Layout, dim: int, kind: Kind) -> Tensor:
        """As :meth:`align`, without a gradient."""
        if (source.key, target.key) not in self._prepared:
            self._prepared[source.key, target.key] = Realignment(source, target, self._places)
        return self._prepared[source.key, target.key].move(features, dim, kind)


class _Align(torch.autograd.Function):
    """Entries only change places, so the adjoint takes their gradients back to them."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, realigner: Realigner, source: Layout, target: Layout, dim: int) -> Tensor:
        ctx.way_back = realigner, target, source, dim
        return realigner.move(features.detach(), source, target, dim, Kind.ALIGN_FORWARD)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        realigner, source, target, dim = ctx.way_back
        return realigner.move(gradient, source, target, dim, Kind.ALIGN_BACKWARD), None, None, None, None
