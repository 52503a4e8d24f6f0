"""Parameters that are divided into pieces, one per rank, and their assembly for checkpoints.

A plain ``nn.Parameter`` is the same on all ranks, and its gradient is the sum of the gradients of the ranks. A
:class:`PartialParameter` is a rectangle of a matrix; its rank computes its complete gradient, or the gradient of some
rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gnnloom.trainer.comm.exchange import collect
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.place.place import Place


@dataclass(frozen=True)
class ParameterPiece:
    """The rectangle of a matrix that a rank holds.

    Attributes:
        grid: all ranks; together they hold the matrix.
        shape: shape of the whole matrix.
        rows: (num_rows,) int64 rows of the whole that the rank holds.
        columns: columns of the whole that the rank holds.
        speaks: True on exactly one of the ranks that hold copies of the same piece.
        layout: layout of a matrix with one row per vertex; None for other matrices, which are small.
    """

    grid: ProcessGrid
    shape: tuple[int, int]
    rows: Tensor
    columns: slice
    speaks: bool = True
    layout: Layout | None = None

    def cut(self, whole: Tensor) -> Tensor:
        """(num_rows, num_columns) the rank's rectangle of the whole, contiguous."""
        return whole[:, self.columns].index_select(0, self.rows)

    def gather(self, values: Tensor) -> Tensor:
        """Assemble the whole on rank 0. Collective.

        Args:
            values: (num_rows, num_columns) the entries of this rank's piece.

        Returns:
            The whole on rank 0; an empty tensor on the others.
        """
        comm, place, columns = self.grid.comm, self.grid.place, range(self.shape[1])[self.columns]
        sent = (self.rows, values.contiguous()) if self.speaks else (self.rows[:0], values[:0])
        # Rank 0 cannot compute the others' pieces, so all ranks announce their shapes for its buffers.
        everyones = comm.gather_numbers([len(sent[0]), columns.start, columns.stop]).astype(int).tolist()
        whole = place.lasting((0,) if comm.rank else self.shape, values.dtype)
        if comm.rank == 0:
            whole[sent[0], self.columns] = sent[1]
        # The row ids travel with the values, because the rows of a piece need not be a range.
        shapes = [((num_rows,), (num_rows, stop - start)) for num_rows, start, stop in everyones]
        for rank, (rows, arrived) in collect(comm, sent, shapes, place, 0, Kind.CHECKPOINT):
            whole[rows, slice(*everyones[rank][1:])] = arrived
        return whole


@dataclass(frozen=True)
class RowGradient:
    """The gradient of a piece that is 0 except in some rows, such as the rows of a batch.

    Attributes:
        rows: (num_given,) int64 distinct rows of the piece.
        values: (num_given, num_columns) gradients of these rows.
    """

    rows: Tensor
    values: Tensor

    @classmethod
    def summed(cls, rows: Tensor, values: Tensor, place: Place) -> RowGradient:
        """The gradient from parts of it: parts of one row are added up in the order in which they are listed.

        Args:
            rows: (num_parts,) int64 row of each part; any row may occur several times.
            values: (num_parts, num_columns).
        """
        # Stable, so that the parts of a row stay in their order.
        ascending, order = torch.sort(rows, stable=True)
        given, counts = torch.unique_consecutive(ascending, return_counts=True)
        if len(given) == len(rows):
            return cls(rows, values)

        def parts(places: Tensor) -> Tensor:
            out = place.empty((len(places), values.shape[1]), values.dtype)
            return torch.index_select(values, 0, order[places], out=out)

        first = counts.cumsum(0) - counts
        total = parts(first)
        for number in range(1, int(counts.max())):
            more = (counts > number).nonzero().squeeze(1)
            # No row occurs twice here, so each number is the sum of two, in any order.
            total.index_add_(0, more, parts(first[more] + number))
        return cls(given, total)


class PartialParameter(nn.Parameter):
    """A rank's piece of a parameter.

    Attributes:
        row_gradient: its gradient, in place of ``grad``, if only some rows have one; the optimizer removes it.
    """

    piece: ParameterPiece
    row_gradient: RowGradient | None = None

    @classmethod
    def cut(cls, whole: Tensor, piece: ParameterPiece) -> PartialParameter:
        """The piece of ``whole`` that this rank holds; ``whole`` has the shape ``piece.shape``."""
        return cls.of(piece.cut(whole), piece)

    @classmethod
    def of(cls, values: Tensor, piece: ParameterPiece) -> PartialParameter:
        """A parameter made from the (num_rows, num_columns) values of a piece, whose memory it shares."""
        parameter = cls(values)
        parameter.piece = piece
        return parameter


def held(whole: Tensor, piece: ParameterPiece | None) -> nn.Parameter:
    """A parameter of this rank's piece, or of the whole if ``piece`` is None."""
    return nn.Parameter(whole) if piece is None else PartialParameter.cut(whole, piece)


def vertex_piece(layout: Layout, num_vertices: int, dim: int) -> ParameterPiece:
    """This rank's piece of a (num_vertices, dim) matrix of ``layout``."""
    speaks = layout.speaks_for_piece(layout.grid.axes)
    return ParameterPiece(layout.grid, (num_vertices, dim), layout.ids, layout.columns(dim), speaks, layout)


def columns_of(parameter: Tensor, layout: Layout, weight_axes: tuple[str, ...]) -> Tensor:
    """The entries of a vector that match this rank's columns of a layout; differentiable.

    The gradients are summed along ``weight_axes``, so only one of the ranks that hold copies of the same columns and
    rows contributes.

    Args:
        parameter: (dim,) the same on all ranks.

    Returns:
        (columns held,).
    """
    result: Tensor = _Columns.apply(parameter, layout, weight_axes)  # type: ignore[no-untyped-call]
    return result


class _Columns(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parameter: Tensor, layout: Layout, weight_axes: tuple[str, ...]) -> Tensor:
        ctx.dim, ctx.columns = len(parameter), layout.columns(len(parameter))
        ctx.speaks, ctx.place = layout.speaks_for_piece(weight_axes), layout.place
        return parameter[ctx.columns].clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        whole = ctx.place.zeros((ctx.dim,), gradient.dtype)
        # The other copies contribute zeros, or the sum over the ranks would count the gradient several times.
        if ctx.speaks:
            whole[ctx.columns] = gradient
        return whole, None, None
