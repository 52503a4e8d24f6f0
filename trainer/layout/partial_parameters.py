"""Parameters of which every rank holds a part, and their whole in checkpoints.

A plain ``nn.Parameter`` is the same on all ranks, and the gradients that the ranks form of it add up to the
whole gradient.  A :class:`PartialParameter` is a rectangle of a matrix; its rank forms its gradient completely.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gnnloom.trainer.comm.communicator import Communicator, Kind
from gnnloom.trainer.layout.layout import Layout


@dataclass(frozen=True)
class Place:
    """Where a rank's part of a matrix lies in it.

    Attributes:
        comm: all ranks, which together hold the matrix.
        shape: of the whole.
        rows: (num_rows,) int64 rows of the whole that the rank holds.
        columns: columns that it holds.
        speaks: True on one of all ranks that hold copies of the same part.
        layout: that of a matrix with a row per vertex; None of others, which are small.
    """

    comm: Communicator
    shape: tuple[int, int]
    rows: Tensor
    columns: slice
    speaks: bool = True
    layout: Layout | None = None

    def cut(self, whole: Tensor) -> Tensor:
        """The rank's part of the whole, contiguous."""
        return whole[:, self.columns].index_select(0, self.rows)

    def gather(self, part: Tensor) -> Tensor:
        """The whole on rank 0, nothing elsewhere. Collective."""
        columns = range(self.shape[1])[self.columns]
        mine = [len(self.rows), columns.start, columns.stop, self.speaks]
        everyones = self.comm.gather_numbers(mine).astype(int).tolist()
        if self.comm.rank > 0:
            if self.speaks:
                given = part.contiguous()
                sends = self.comm.send(self.rows, 0, Kind.CHECKPOINT)
                self.comm.wait(sends + self.comm.send(given, 0, Kind.CHECKPOINT))
            return part.new_empty(0)
        whole = part.new_empty(self.shape)
        if self.speaks:
            whole[self.rows, self.columns] = part
        for rank, (num_rows, start, stop, speaks) in enumerate(everyones[1:], 1):
            if speaks:
                rows, values = self.rows.new_empty(num_rows), part.new_empty(num_rows, stop - start)
                self.comm.wait(self.comm.receive(rows, rank) + self.comm.receive(values, rank))
                whole[rows, start:stop] = values
        return whole


class PartialParameter(nn.Parameter):
    """A rank's part of a parameter."""

    place: Place

    @classmethod
    def cut(cls, whole: Tensor, place: Place) -> PartialParameter:
        """The part of ``whole`` that this rank holds."""
        return cls.of(place.cut(whole), place)

    @classmethod
    def of(cls, part: Tensor, place: Place) -> PartialParameter:
        """A parameter of a part that was cut already."""
        parameter = cls(part)
        parameter.place = place
        return parameter


def held(whole: Tensor, place: Place | None) -> nn.Parameter:
    """A parameter of this rank's part, or of the whole where the place is None."""
    return nn.Parameter(whole) if place is None else PartialParameter.cut(whole, place)


def vertex_place(layout: Layout, num_vertices: int, dim: int) -> Place:
    """Where this rank's part of a (num_vertices, dim) matrix of ``layout`` lies in it."""
    axes = layout.grid.axes
    shape = (num_vertices, dim)
    speaks = layout.speaks_for_share(axes)
    return Place(layout.grid.comm, shape, torch.from_numpy(layout.vertex), layout.columns(dim), speaks, layout)


def columns_of(parameter: Tensor, layout: Layout, weight_axes: tuple[str, ...]) -> Tensor:
    """The columns of a vector, the same on all ranks, that fit this rank's columns of a layout; differentiable.

    Its gradients add up along ``weight_axes``: of ranks with copies of the same columns and rows, one has it.

    Args:
        parameter: (dim,).
    """
    result: Tensor = _Columns.apply(parameter, layout, weight_axes)  # type: ignore[no-untyped-call]
    return result


class _Columns(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parameter: Tensor, layout: Layout, weight_axes: tuple[str, ...]) -> Tensor:
        ctx.dim, ctx.columns = len(parameter), layout.columns(len(parameter))
        ctx.speaks = layout.speaks_for_share(weight_axes)
        return parameter[ctx.columns].clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        whole = gradient.new_zeros(ctx.dim)
        if ctx.speaks:
            whole[ctx.columns] = gradient
        return whole, None, None
