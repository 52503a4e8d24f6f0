"""Layer and batch normalization of matrices that are distributed over ranks."""

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

#: Added to the variance; torch's default.
_EPSILON = 1e-5


class Norm(nn.Module, ABC):
    """Standardizes a matrix, then scales and shifts its columns by learned parameters."""

    def __init__(self, dim: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.dim = dim
        self.scale = nn.Parameter(torch.ones(dim, dtype=dtype))
        self.shift = nn.Parameter(torch.zeros(dim, dtype=dtype))

    def forward(self, features: Tensor, layout: Layout, weight_axes: tuple[str, ...]) -> Tensor:
        """Normalize this rank's share of a (n, dim) matrix. Collective.

        Args:
            features: (num_rows, columns held) of ``layout``.
            weight_axes: axes of the grid along which the gradients of parameters are summed.

        Returns:
            (num_rows, columns held).
        """
        scale, shift = (columns_of(vector, layout, weight_axes) for vector in (self.scale, self.shift))
        return self._standardized(features, layout) * scale + shift

    @abstractmethod
    def _standardized(self, features: Tensor, layout: Layout) -> Tensor:
        """The features with mean 0 and variance 1. Collective."""


class LayerNorm(Norm):
    """Normalizes every row by its own mean and variance (Ba, Kiros, Hinton, 2016)."""

    def _standardized(self, features: Tensor, layout: Layout) -> Tensor:
        return standardize(features, 1, layout.column_group).values


class BatchNorm(Norm):
    """Normalizes every column by its mean and variance over the rows of all ranks (Ioffe, Szegedy, ICML 2015).

    The whole graph is the batch, so all vertices count. Evaluation uses running averages of the training's means and
    variances.
    """

    #: Weight of the newest epoch in the running averages; torch's default.
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
        self._update_running(result, layout)
        return result.values

    def _update_running(self, result: Standardized, layout: Layout) -> None:
        """Update the running averages of all columns, which are spread over the ranks of the column group."""
        moments = result.mean.new_zeros(2, self.dim)
        # As in torch, the variance that is kept is the unbiased one, with n - 1.
        sample = result.variance * (result.count / max(result.count - 1, 1))
        moments[:, layout.columns(self.dim)] = torch.cat([result.mean, sample])
        # Each column has one owner in the group, and the others add 0, so every rank keeps all columns.
        layout.column_group.all_reduce(moments, Kind.NORM)
        self.running_mean.lerp_(moments[0], self.MOMENTUM)
        self.running_variance.lerp_(moments[1], self.MOMENTUM)


class Standardized:
    """Values of mean 0 and variance 1 along one dim, and the moments that they were standardized with."""

    def __init__(self, values: Tensor, mean: Tensor, variance: Tensor, count: int) -> None:
        self.values, self.mean, self.variance, self.count = values, mean, variance, count


def standardize(features: Tensor, dim: int, group: Communicator) -> Standardized:
    """Subtract the mean along ``dim`` and divide by the standard deviation; differentiable. Collective.

    Args:
        features: (num_rows, num_columns) this rank's share; the other ranks of ``group`` hold the rest along ``dim``.

    Returns:
        Values of the shape of ``features``; mean and variance with size 1 along ``dim``; the number of entries along
        ``dim`` over all ranks.
    """
    values, mean, variance, count = _Standardize.apply(features, dim, group)  # type: ignore[no-untyped-call]
    return Standardized(values, mean, variance, int(count))


class _Standardize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, dim: int, group: Communicator) -> tuple[Tensor, ...]:
        count = torch.tensor([features.shape[dim]], dtype=torch.int64)
        group.all_reduce(count, Kind.NORM)
        mean = _sum(features, dim, group) / count
        centered = features - mean
        # Two passes: the mean of squares minus the square of the mean would lose digits to cancellation.
        variance = _sum(centered.square(), dim, group) / count
        factor = (variance + _EPSILON).rsqrt()
        values = centered * factor
        ctx.dim, ctx.group, ctx.count = dim, group, count
        ctx.save_for_backward(values, factor)
        # The backward pass covers the way through the mean and the variance, so callers get them as constants.
        ctx.mark_non_differentiable(mean, variance, count)
        return values, mean, variance, count

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor, None, None]:
        """An input also acts through the mean and the variance, which adds two sums over all ranks."""
        values, factor = ctx.saved_tensors
        # Both sums in one message.
        sums = torch.stack([gradient.sum(ctx.dim, keepdim=True), (gradient * values).sum(ctx.dim, keepdim=True)])
        ctx.group.all_reduce(sums, Kind.NORM)
        sums /= ctx.count
        return (gradient - sums[0] - values * sums[1]) * factor, None, None


def _sum(values: Tensor, dim: int, group: Communicator) -> Tensor:
    total = values.sum(dim, keepdim=True)
    group.all_reduce(total, Kind.NORM)
    return total


def unit_rows(features: Tensor, layout: Layout) -> Tensor:
    """Scale every row to length 1; rows of zeros stay zero. Differentiable. Collective.

    Args:
        features: (num_rows, columns held) of ``layout``.

    Returns:
        (num_rows, columns held).
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
        # The gradient of x / |x| has no component along the row. A row of zeros has the factor 0, and so no gradient.
        along = _sum(gradient * values, 1, ctx.group)
        return (gradient - values * along) * factor, None


_KINDS: dict[str, type[Norm]] = {"layer": LayerNorm, "batch": BatchNorm}


def build_norms(norm: str, dims: Sequence[int], dtype: torch.dtype) -> list[Norm]:
    """One normalization per width; an empty list for ``none``."""
    return [] if norm == "none" else [_KINDS[norm](dim, dtype) for dim in dims]
