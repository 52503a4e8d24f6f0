"""Layer and batch normalization of matrices distributed over ranks, also for ``nn.BatchNorm1d`` in a user's model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.partial_parameters import columns_of
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.place.place import Place

#: Added to the variance; torch's default.
_EPSILON = 1e-5


class Norm(nn.Module, ABC):
    """Standardizes a matrix, then scales and shifts its columns by learned parameters."""

    def __init__(self, dim: int, place: Place) -> None:
        super().__init__()
        self.dim = dim
        self.scale = nn.Parameter(place.lasting((dim,), place.sum_dtype).fill_(1))
        self.shift = nn.Parameter(place.lasting((dim,), place.sum_dtype))

    def forward(self, features: Tensor, layout: Layout, weight_axes: tuple[str, ...]) -> Tensor:
        """Normalize this rank's share of a (n, dim) matrix. Collective.

        Args:
            features: (num_rows, columns held) of ``layout``.
            weight_axes: axes of the grid along which the gradients of parameters are summed.

        Returns:
            (num_rows, columns held).
        """
        scale, shift = (columns_of(vector, layout, weight_axes) for vector in (self.scale, self.shift))
        return self._normalized(features, scale, shift, layout)

    @abstractmethod
    def _normalized(self, features: Tensor, scale: Tensor, shift: Tensor, layout: Layout) -> Tensor:
        """The features with mean 0 and variance 1, times the scale, plus the shift. Collective."""


class LayerNorm(Norm):
    """Normalizes every row by its own mean and variance (Ba, Kiros, Hinton, 2016)."""

    def _normalized(self, features: Tensor, scale: Tensor, shift: Tensor, layout: Layout) -> Tensor:
        return standardize(features, scale, shift, 1, layout.column_group, layout.place).values


class BatchNorm(Norm):
    """Normalizes every column by its mean and variance over the rows of all ranks (Ioffe, Szegedy, ICML 2015).

    The whole graph is the batch, so all vertices count. Evaluation uses running averages of means and variances from
    training.
    """

    #: Weight of the newest epoch in the running averages; torch's default.
    MOMENTUM = 0.1

    def __init__(self, dim: int, place: Place) -> None:
        super().__init__(dim, place)
        self.running_mean: Tensor
        self.running_variance: Tensor
        self.register_buffer("running_mean", place.lasting((dim,), place.sum_dtype))
        self.register_buffer("running_variance", place.lasting((dim,), place.sum_dtype).fill_(1))

    def _normalized(self, features: Tensor, scale: Tensor, shift: Tensor, layout: Layout) -> Tensor:
        if not self.training:
            columns = layout.columns(self.dim)
            factor = (self.running_variance[columns] + _EPSILON).rsqrt()
            result: Tensor = _Affine.apply(features, self.running_mean[columns], factor, scale, shift, layout.place)  # type: ignore[no-untyped-call]
            return result
        found = standardize(features, scale, shift, 0, layout.grid.group(layout.row_axes), layout.place)
        moments = layout.place.zeros((2, self.dim), found.mean.dtype)
        # As in torch, the stored variance is the unbiased one, with n - 1.
        sample = found.variance * (found.count / max(found.count - 1, 1))
        moments[:, layout.columns(self.dim)] = torch.cat([found.mean, sample])
        # Each column has one owner in the group, and the others add 0, so every rank keeps all columns.
        layout.column_group.all_reduce(moments, Kind.NORM)
        self.running_mean.lerp_(moments[0], self.MOMENTUM)
        self.running_variance.lerp_(moments[1], self.MOMENTUM)
        return found.values


class Standardized:
    """Values of mean 0 and variance 1 along one dim, scaled and shifted, and their original moments."""

    def __init__(self, values: Tensor, mean: Tensor, variance: Tensor, count: int) -> None:
        self.values, self.mean, self.variance, self.count = values, mean, variance, count


def standardize(
    features: Tensor,
    scale: Tensor,
    shift: Tensor,
    dim: int,
    group: Communicator,
    place: Place,
    epsilon: float = _EPSILON,
) -> Standardized:
    """Subtract the mean along ``dim`` and divide by the standard deviation; then scale and shift the columns.

    Differentiable. Collective.

    Args:
        features: (num_rows, num_columns) this rank's share; the other ranks of ``group`` hold the rest along ``dim``.
        scale, shift: (num_columns,).
        epsilon: added to the variance.

    Returns:
        Values of the shape of ``features``; mean and variance with size 1 along ``dim``; the number of entries along
        ``dim`` over all ranks.
    """
    given = features, scale, shift, dim, group, place, epsilon
    values, mean, variance, count = _Standardize.apply(*given)  # type: ignore[no-untyped-call]
    return Standardized(values, mean, variance, int(count))


class _Standardize(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        scale: Tensor,
        shift: Tensor,
        dim: int,
        group: Communicator,
        place: Place,
        epsilon: float,
    ) -> tuple[Tensor, ...]:
        given, factors = features.detach(), scale.detach()
        count = place.tensor([given.shape[dim]], torch.int64)
        group.all_reduce(count, Kind.NORM)
        mean = _sum(given, dim, group, place).div_(count)
        values = torch.sub(given, mean, out=place.like(given))
        # Two passes: the mean of squares minus the square of the mean would lose digits to cancellation.
        result = torch.square(values, out=place.like(given))
        variance = _sum(result, dim, group, place).div_(count)
        factor = torch.add(variance, epsilon, out=place.like(variance)).rsqrt_()
        values.mul_(factor)
        torch.mul(values, factors, out=result).add_(shift.detach())
        ctx.given = dim, group, count, place
        ctx.save_for_backward(values, factor, scale)
        # The backward pass accounts for the mean and the variance, so callers get them as constants.
        ctx.mark_non_differentiable(mean, variance, count)
        # This also keeps autograd from making zeros of their sizes for the backward pass.
        ctx.set_materialize_grads(False)
        return result, mean, variance, count

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """An input also has an effect through the mean and the variance, which adds two sums over all ranks."""
        values, factor, scale = ctx.saved_tensors
        dim, group, count, place = ctx.given
        product = torch.mul(gradient, values, out=place.like(gradient))
        of_scale, of_shift = product.sum(0), gradient.sum(0)
        result = torch.mul(gradient, scale, out=place.like(gradient))
        # Both sums in one message.
        sums = place.empty((2, *factor.shape), gradient.dtype)
        torch.sum(result, dim, keepdim=True, out=sums[0])
        torch.sum(torch.mul(result, values, out=product), dim, keepdim=True, out=sums[1])
        group.all_reduce(sums, Kind.NORM)
        sums /= count
        result.sub_(sums[0]).sub_(torch.mul(values, sums[1], out=product)).mul_(factor)
        return result, of_scale, of_shift, None, None, None, None


class _Affine(torch.autograd.Function):
    """Standardization with given moments."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, mean: Tensor, factor: Tensor, scale: Tensor, shift: Tensor, place: Place
    ) -> Tensor:
        ctx.save_for_backward(features, mean, factor, scale)
        centered = torch.sub(features.detach(), mean, out=place.like(features))
        return centered.mul_(factor).mul_(scale.detach()).add_(shift.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        features, mean, factor, scale = ctx.saved_tensors
        of_scale = (gradient * (features - mean) * factor).sum(0)
        return gradient * scale * factor, None, None, of_scale, gradient.sum(0), None


def _sum(values: Tensor, dim: int, group: Communicator, place: Place) -> Tensor:
    """The sum over ``dim`` and the ranks of a group, with size 1 along ``dim``. Collective."""
    shape = (1, values.shape[1]) if dim == 0 else (len(values), 1)
    total = torch.sum(values, dim, keepdim=True, out=place.empty(shape, values.dtype))
    group.all_reduce(total, Kind.NORM)
    return total


def unit_rows(features: Tensor, layout: Layout) -> Tensor:
    """Scale every row to length 1; rows of zeros stay zero. Differentiable. Collective.

    Args:
        features: (num_rows, columns held) of ``layout``.

    Returns:
        (num_rows, columns held).
    """
    result: Tensor = _UnitRows.apply(features, layout.column_group, layout.place)  # type: ignore[no-untyped-call]
    return result


class _UnitRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, group: Communicator, place: Place) -> Tensor:
        given = features.detach()
        values = torch.square(given, out=place.like(given))
        factor = _sum(values, 1, group, place).sqrt_().reciprocal_()
        # 1 / 0, of a row of zeros.
        factor.nan_to_num_(nan=torch.nan, posinf=0)
        torch.mul(given, factor, out=values)
        ctx.group, ctx.place = group, place
        ctx.save_for_backward(values, factor)
        return values

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        values, factor = ctx.saved_tensors
        product = torch.mul(gradient, values, out=ctx.place.like(gradient))
        # The gradient of x / |x| has no component along the row. A row of zeros has the factor 0, and so no gradient.
        along = _sum(product, 1, ctx.group, ctx.place)
        result = torch.sub(gradient, torch.mul(values, along, out=product), out=product)
        return result.mul_(factor), None, None


_KINDS: dict[str, type[Norm]] = {"layer": LayerNorm, "batch": BatchNorm}


def build_norms(norm: str, dims: Sequence[int], place: Place) -> list[Norm]:
    """One normalization per width; an empty list for ``none``."""
    return [] if norm == "none" else [_KINDS[norm](dim, place) for dim in dims]


class WholeBatchNorm(nn.BatchNorm1d):
    """Normalizes with the mean and variance of the rows of all ranks, as ``nn.BatchNorm1d`` does on one. Collective.

    Attributes:
        find_operator: finds the operator by which the model currently multiplies; its ranks hold the rows.
    """

    find_operator: Callable[[], Operator]

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """(num_rows, dim) normalized rows.

        Args:
            input: (num_rows, dim) this rank's rows, possibly none.
        """
        if not self.training or input.dim() != 2:
            return super().forward(input)
        layout = self.find_operator().layout(0)
        place, shape = layout.place, (self.num_features,)
        scale = self.weight if self.affine else place.zeros(shape, input.dtype).fill_(1)
        shift = self.bias if self.affine else place.zeros(shape, input.dtype)
        group = layout.grid.group(layout.row_axes)
        found = standardize(input, scale, shift, 0, group, place, self.eps)
        if self.track_running_stats:
            self._update(found.mean[0], found.variance[0] * (found.count / max(found.count - 1, 1)))
        return found.values

    @torch.no_grad()
    def _update(self, mean: Tensor, variance: Tensor) -> None:
        """Update the running averages, as torch does."""
        batches, running_mean, running_variance = self.num_batches_tracked, self.running_mean, self.running_var
        if batches is None or running_mean is None or running_variance is None:
            return
        batches += 1
        # Without a momentum, all batches count alike.
        momentum = 1 / int(batches) if self.momentum is None else self.momentum
        running_mean.lerp_(mean, momentum)
        running_variance.lerp_(variance, momentum)


def share_batch_norms(module: nn.Module, find_operator: Callable[[], Operator]) -> None:
    """Let every ``nn.BatchNorm1d`` below a module normalize over the rows of all ranks. Communicates nothing."""
    for child in module.modules():
        # A user's subclass may compute something else.
        if type(child) is nn.BatchNorm1d:
            # Parameters, buffers and hooks stay.
            child.__class__ = WholeBatchNorm
            cast("WholeBatchNorm", child).find_operator = find_operator
