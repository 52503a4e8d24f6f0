"""Layer and batch normalization of matrices that are spread over ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.partial_parameters import columns_of

_EPSILON = 1e-5


class Norm(nn.Module, ABC):
    """Standardizes a matrix, then scales and shifts its columns by learned factors."""

    def __init__(self, dim: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.dim = dim
        self.scale = nn.Parameter(torch.ones(dim, dtype=dtype))
        self.shift = nn.Parameter(torch.zeros(dim, dtype=dtype))

    def forward(self, features: Tensor, layout: Layout, weight_axes: tuple[str, ...]) -> Tensor:
        """Normalize this rank's share of a (n, dim) matrix. Collective.

        Args:
            weight_axes: axes along which the gradients of parameters add up.
        """
        scale, shift = (columns_of(vector, layout, weight_axes) for vector in (self.scale, self.shift))
        return self._standardized(features, layout) * scale + shift

    @abstractmethod
    def _standardized(self, features: Tensor, layout: Layout) -> Tensor:
        """The features with mean 0 and variance 1."""


class LayerNorm(Norm):
    """Every row by its own mean and variance (Ba, Kiros, Hinton, 2016)."""

    def _standardized(self, features: Tensor, layout: Layout) -> Tensor:
        return standardize(features, 1, layout.column_group).values


class BatchNorm(Norm):
    """Every column by its mean and variance over the rows of all ranks (Ioffe, Szegedy, ICML 2015).

    Evaluation uses running figures, which follow those of training; all vertices count, as the whole
    graph is the batch.
    """

    MOMENTUM = 0.1

    def __init__(self, dim: int, dtype: torch.dtype) -> None:
        super().__init__(dim, dtype)
        self.running_mean: Tensor
        self.running_variance: Tensor
        self.register_buffer("running_mean", torch.zeros(dim, dtype=dtype))
        self.register_buffer("running_variance", torch.ones(dim, dtype=dtype))

    def _standardized(self, features: Tensor, layout: Layout) -> Tensor:
        if not self.training:
            columns = layout.columns(self.dim)
            return (features - self.running_mean[columns]) * (self.running_variance[columns] + _EPSILON).rsqrt()
        result = standardize(features, 0, layout.grid.group(layout.row_axes))
        self._follow(result, layout)
        return result.values

    def _follow(self, result: Standardized, layout: Layout) -> None:
        """Move the running figures towards those of all columns, which the ranks of the column group hold."""
        figures = result.mean.new_zeros(2, self.dim)
        # As usual, the variance that is kept is the one of a sample, with n - 1.
        sample = result.variance * (result.count / max(result.count - 1, 1))
        figures[:, layout.columns(self.dim)] = torch.cat([result.mean, sample])
        layout.column_group.all_reduce(figures, Kind.NORM)
        self.running_mean.lerp_(figures[0], self.MOMENTUM)
        self.running_variance.lerp_(figures[1], self.MOMENTUM)


class Standardized:
    """Values of mean 0 and variance 1 along one dim, and the figures that made them so."""

    def __init__(self, values: Tensor, mean: Tensor, variance: Tensor, count: int) -> None:
        self.values, self.mean, self.variance, self.count = values, mean, variance, count


def standardize(features: Tensor, dim: int, group: Communicator) -> Standardized:
    """Subtract the mean along ``dim`` and divide by the deviation; differentiable. Collective.

    Args:
        features: (num_rows, num_columns) of this rank; the ranks of ``group`` hold the others along ``dim``.
    """
    values, mean, variance, count = _Standardize.apply(features, dim, group)  # type: ignore[no-untyped-call]
    return Standardized(values, mean, variance, int(count))


class _Standardize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, dim: int, group: Communicator) -> tuple[Tensor, ...]:
        count = torch.tensor([features.shape[dim]], dtype=torch.int64)
        group.all_reduce(count, Kind.NORM)
        mean = _sum(features, dim, group) / count
        centred = features - mean
        # A second sum over the centred values: the mean of squares less the square of the mean would cancel.
        variance = _sum(centred.square(), dim, group) / count
        factor = (variance + _EPSILON).rsqrt()
        values = centred * factor
        ctx.dim, ctx.group, ctx.count = dim, group, count
        ctx.save_for_backward(values, factor)
        ctx.mark_non_differentiable(mean, variance, count)
        return values, mean, variance, count

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor, None, None]:
        """The values change with an input also by way of the mean and of the variance: two sums over all ranks."""
        values, factor = ctx.saved_tensors
        sums = torch.stack([gradient.sum(ctx.dim, keepdim=True), (gradient * values).sum(ctx.dim, keepdim=True)])
        ctx.group.all_reduce(sums, Kind.NORM)
        sums /= ctx.count
        return (gradient - sums[0] - values * sums[1]) * factor, None, None


def _sum(values: Tensor, dim: int, group: Communicator) -> Tensor:
    total = values.sum(dim, keepdim=True)
    group.all_reduce(total, Kind.NORM)
    return total


def unit_rows(features: Tensor, layout: Layout) -> Tensor:
    """Scale every row to length 1; rows of zeros stay. Differentiable and collective.

    Args:
        features: (num_rows, columns held) of ``layout``.
    """
    result: Tensor = _UnitRows.apply(features, layout.column_group)  # type: ignore[no-untyped-call]
    return result


class _UnitRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, group: Communicator) -> Tensor:
        length = _sum(features.square(), 1, group).sqrt_()
        factor = torch.where(length > 0, 1 / length, 0)
        values = features * factor
        ctx.group = group
        ctx.save_for_backward(values, factor)
        return values

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        values, factor = ctx.saved_tensors
        along = _sum(gradient * values, 1, ctx.group)
        return (gradient - values * along) * factor, None


_KINDS: dict[str, type[Norm]] = {"layer": LayerNorm, "batch": BatchNorm}


def build_norms(norm: str, dims: Sequence[int], dtype: torch.dtype) -> list[Norm]:
    """One normalization for each width; none for ``none``."""
    return [] if norm == "none" else [_KINDS[norm](dim, dtype) for dim in dims]
