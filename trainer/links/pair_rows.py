"""Rows of both ends of pairs: every row of a model's output on one rank, and the rows of other ranks on request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.local_numbers import LocalNumbers
from gnnloom.storage.matrix.ranges import range_of
from gnnloom.trainer.data.owners import Owners
from gnnloom.trainer.data.row_exchange import RowExchange
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.realignment import VertexOrders
from gnnloom.trainer.place.place import Place

#: Moves a matrix of some width from one layout to another, as operators do; differentiable and collective.
Align = Callable[[Tensor, Layout, Layout, int], Tensor]
#: From ids of vertices of this rank, of any shape, the numbers of their rows.
Numbering = Callable[[NDArray[np.int64]], NDArray[np.int64]]


class PairRows:
    """Whole rows of a model's output, each on the rank that owns its vertex.

    A rank computes on the pairs whose sources it owns, so each pair belongs to one rank, and the sum over all ranks is
    the sum over all pairs.

    Attributes:
        layout: layout of the rows: without copies, and with all columns.
        vertex: (num_mine,) int64 global ids of this rank's rows.
        dim: number of columns.
    """

    def __init__(
        self,
        source: Layout,
        dim: int,
        num_vertices: int,
        owners: Owners | None,
        align: Align | None = None,
        local_numbers: Callable[[NDArray[np.int64]], Numbering] = LocalNumbers.of,
    ) -> None:
        """Prepare for matrices of a layout. Communicates nothing.

        Args:
            source: layout of the model's output.
            dim: width of the model's output.
            owners: rank of every vertex: on row shards the array of the partition, on grids :class:`GridOwners`; None
                for one rank.
            align: the operator's; not needed if every rank of ``source`` has rows of its own.
            local_numbers: from the vertices of this rank's rows, what finds the rows of vertices.
        """
        self._source, self._align, self._owners = source, align, owners
        self.layout, self.dim = own_rows(source, num_vertices), dim
        self.vertex = self.layout.vertex
        self.local = local_numbers(self.vertex)
        self._comm, self._place = self.layout.grid.comm, self.layout.place

    def owner(self, vertices: NDArray[np.int64]) -> NDArray[np.int32]:
        """(num_vertices,) int32 the ranks that own some vertices. Collective."""
        return np.zeros(len(vertices), np.int32) if self._owners is None else self._owners[vertices]

    def spread(self, output: Tensor) -> Tensor:
        """The rows that this rank owns; differentiable. Collective, forward and backward.

        Backward, every rank gets the gradient of all that it holds, also of what other ranks hold copies of, as any
        loss leaves it behind. Free if every rank has whole rows of its own.

        Args:
            output: (num_rows, columns held) of the model's layout.

        Returns:
            (num_mine, dim).
        """
        if self._align is None or self.layout is self._source:
            return output
        return self._align(output, self._source, self.layout, self.dim)

    def fetch(self, rows: Tensor, vertices: NDArray[np.int64]) -> Tensor:
        """The rows of any vertices; differentiable. Collective, forward and backward.

        Ranks may ask for different numbers of vertices, also for none; those without a pair take part in the backward
        pass too.

        Args:
            rows: (num_mine, dim) of :meth:`spread`.
            vertices: (num_vertices,) int64, each at most once.

        Returns:
            (num_vertices, dim).
        """
        exchange = RowExchange(self._comm, self.local, rows.detach(), self._owners, self._place)
        result: Tensor = _Fetch.apply(rows, exchange, vertices, self._place)  # type: ignore[no-untyped-call]
        return result

    def numbered(self, rows: Tensor, *ends: NDArray[np.int64]) -> tuple[Tensor, list[NDArray[np.int64]]]:
        """Rows of vertices that may repeat, such as all sources and all targets; differentiable. Collective.

        Every row is fetched once, however often its vertex occurs. On one rank, the rows stay where they are.

        Args:
            rows: (num_mine, dim) of :meth:`spread`.
            ends: arrays of vertices of any shapes.

        Returns:
            (num_fetched, dim) rows, and for each array, in its shape, the numbers of its vertices among them.
        """
        if self._owners is None:
            return rows, [self.local(each) for each in ends]
        vertices, numbers = np.unique(np.concatenate([each.ravel() for each in ends]), return_inverse=True)
        parts = np.split(numbers, np.cumsum([each.size for each in ends])[:-1])
        return self.fetch(rows, vertices), [part.reshape(each.shape) for part, each in zip(parts, ends, strict=True)]

    def ends(self, rows: Tensor, *ends: NDArray[np.int64]) -> list[Tensor]:
        """Like :meth:`numbered`, but every array's rows in its shape. Collective.

        Takes memory for a row of every element; see :mod:`gnnloom.trainer.links.pair_sums` for what takes less.

        Returns:
            For each array, a tensor of its shape and ``dim``.
        """
        fetched, numbers = self.numbered(rows, *ends)
        return [taken_rows(fetched, each.ravel(), self._place).view(*each.shape, self.dim) for each in numbers]


class GridOwners:
    """Ranks of a process grid that own vertices, computed from their positions.

    Looking up is collective if ``orders`` communicate, like the orders of a partition.
    """

    def __init__(self, source: Layout, orders: VertexOrders) -> None:
        """Communicates nothing.

        Args:
            source: layout of the model's output, whose order is one of ``orders``.
        """
        self._order, self._orders = source.order, orders
        grid, axes = source.grid, _row_axes(source)
        #: Ranks in the order of the rows that they own.
        self._ranks = np.array([grid.index(grid.axes, each) for each in grid.members(axes)], np.int32)

    def __getitem__(self, vertices: NDArray[np.int64], /) -> NDArray[np.int32]:
        position = self._orders.positions(self._order, vertices)
        return self._ranks[range_of(max(self._orders.num_vertices, 1), len(self._ranks), position)]


def own_rows(source: Layout, num_vertices: int) -> Layout:
    """The layout that splits the rows of another one among the ranks that hold their columns and copies.

    Returns:
        A layout without copies and with all columns; ``source`` itself if it is one.
    """
    axes = _row_axes(source)
    if axes == source.row_axes:
        return source
    first = source.grid.span(num_vertices, source.row_axes)[0]
    # The further axes vary fastest, so what they split of all rows is what they split of this rank's.
    start, stop = source.grid.span(num_vertices, axes)
    return replace(source, vertex=source.vertex[start - first : stop - first], row_axes=axes, column_axes=())


def _row_axes(source: Layout) -> tuple[str, ...]:
    """All axes with several ranks; axes that split the rows of a layout come first."""
    axes = source.grid.axes
    return source.row_axes + tuple(axis for axis in axes if axis not in source.row_axes and axes[axis] > 1)


def taken_rows(rows: Tensor, numbers: NDArray[np.int64], place: Place) -> Tensor:
    """Gather rows; a row may be taken several times. Differentiable; communicates nothing.

    Args:
        rows: (num_rows, dim).
        numbers: (num_taken,) int64.

    Returns:
        (num_taken, dim).
    """
    result: Tensor = _Take.apply(rows, place.from_numpy(numbers), place)  # type: ignore[no-untyped-call]
    return result


def taken_ends(
    rows: Tensor, source: NDArray[np.int64], target: NDArray[np.int64], place: Place
) -> tuple[Tensor, Tensor]:
    """The rows of both ends of pairs; differentiable, with the bits of two calls of :func:`taken_rows`.

    The gradient is added up in the memory of the first end's, as autograd does where it can. The forecast of memory
    cannot tell where, so it is not left to autograd.

    Args:
        rows: (num_rows, dim).
        source, target: (num_pairs,) int64.

    Returns:
        (num_pairs, dim) of each end.
    """
    numbers = place.from_numpy(source), place.from_numpy(target)
    found: tuple[Tensor, Tensor] = _TakeEnds.apply(rows, *numbers, place)  # type: ignore[no-untyped-call]
    return found


class _Fetch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, exchange: RowExchange, vertices: NDArray[np.int64], place: Place) -> Tensor:
        ctx.given = exchange, vertices, len(rows), place
        return exchange.fetch(vertices)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        exchange, vertices, num_rows, place = ctx.given
        numbers, arrived = exchange.give_back(vertices, gradient)
        return _sums(arrived, numbers, num_rows, place), None, None, None


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, numbers: Tensor, place: Place) -> Tensor:
        ctx.given = numbers, len(rows), place
        return torch.index_select(rows.detach(), 0, numbers, out=place.empty((len(numbers), rows.shape[1]), rows.dtype))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _sums(gradient, *ctx.given), None, None


class _TakeEnds(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, source: Tensor, target: Tensor, place: Place) -> tuple[Tensor, ...]:
        ctx.given, given = (source, target, len(rows), place), rows.detach()
        shape = len(source), rows.shape[1]
        return tuple(
            torch.index_select(given, 0, each, out=place.empty(shape, rows.dtype)) for each in (source, target)
        )

    @staticmethod
    def backward(ctx: Any, of_source: Tensor, of_target: Tensor) -> tuple[Tensor | None, ...]:
        source, target, num_rows, place = ctx.given
        total = _sums(of_source, source, num_rows, place)
        return total.add_(_sums(of_target, target, num_rows, place)), None, None, None


def _sums(rows: Tensor, numbers: Tensor, num_sums: int, place: Place) -> Tensor:
    """(num_sums, dim) sums of the rows with each number, added in their order."""
    return place.zeros((num_sums, rows.shape[1]), rows.dtype).index_add_(0, numbers, rows)
