"""Bias, ReLU and dropout of a layer's output, in one pass over its rows, forward and backward.

The mask of dropout is a function of the seed, epoch, layer, vertex and feature instead of a random draw: the same
    vertices drop the same features on any rank, and no mask is stored for the backward pass, which computes
it again. The sign mask of the ReLU is packed, one bit per number; neither the layer's output nor its result is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.kernels.elementwise import column_sums
from gnnloom.trainer.kernels.table import kernels_of
from gnnloom.trainer.place.arrays import sum_dtype
from gnnloom.trainer.place.contract import LANES, Mask, RowPass, RowStep
from gnnloom.trainer.place.place import Place


@dataclass(frozen=True)
class Dropout:
    """Sets features to zero with a probability, and scales the others so that the expected value stays the same.

    Attributes:
        probability: probability of a zero, in [0, 1).
        seed: the run's seed.
    """

    probability: float
    seed: int
    place: Place

    def apply(self, features: Tensor, vertex: NDArray[np.int64], first_column: int, epoch: int, layer: int) -> Tensor:
        """Drop some of a rank's features; differentiable.

        Args:
            features: (num_rows, num_columns) float32, float64 or bfloat16, a rectangle of the matrix of all vertices.
            vertex: (num_rows,) int64 global ids of the rows.
            first_column: column of the whole matrix at which the rectangle begins.

        Returns:
            (num_rows, num_columns); ``features`` itself if the probability is 0.
        """
        mask = self.mask(vertex, first_column, epoch, layer)
        if mask is None:
            return features
        result: Tensor = _Drop.apply(features, mask, self)  # type: ignore[no-untyped-call]
        return result

    def mask(self, vertex: NDArray[np.int64], first_column: int, epoch: int, layer: int) -> Mask | None:
        """Mask of the features of a rectangle that are dropped in one epoch and layer; None if the probability is 0."""
        if self.probability == 0:
            return None
        # SeedSequence hashes its numbers, so consecutive epochs and layers have unrelated keys.
        key = np.random.SeedSequence([self.seed, epoch, layer]).generate_state(1, np.uint64)[0]
        # A feature is dropped if its 32-bit hash is below the threshold; the cap keeps a probability near 1 in range.
        threshold = np.uint32(min(round(self.probability * 2**32), 2**32 - 1))
        # The ids in the form that the kernels read.
        return Mask(np.ascontiguousarray(vertex, np.int64), first_column, key, threshold, 1 / (1 - self.probability))


class _Drop(torch.autograd.Function):
    """Multiplication by the mask is its own adjoint."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, mask: Mask, dropout: Dropout) -> Tensor:
        # Only the key and the vertex ids are kept for the backward pass, no matrix.
        ctx.given = mask, dropout
        return _masked(features.detach(), *ctx.given)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _masked(gradient, *ctx.given), None, None


def _masked(features: Tensor, mask: Mask, dropout: Dropout) -> Tensor:
    source = dropout.place.contiguous(features)
    result = dropout.place.like(source)
    given = RowPass(RowStep.DROP, source, result, mask=mask, scale=mask.scale)
    kernels_of(dropout.place).pass_rows(given, dropout.place)
    return result


def rectify(
    output: Tensor,
    bias: Tensor | None,
    mask: Mask | None,
    place: Place,
    *,
    in_place: bool = False,
    spends_gradient: bool = False,
) -> Tensor:
    """The dropout of relu(output + bias); differentiable.

    Args:
        output: (num_rows, dim) float32, float64 or bfloat16.
        bias: (dim,) of the same dtype, or float32 for bfloat16; None without a bias.
        mask: features to drop; None for no dropout.
        in_place: overwrite ``output``, which nothing else may need: neither another operation nor the backward pass of
            the operation that formed it.
        spends_gradient: backward, overwrite the gradient of the result, which autograd must not pass to another
            operation as well.

    Returns:
        (num_rows, dim).
    """
    result: Tensor = _Rectify.apply(output, bias, mask, place, in_place, spends_gradient)  # type: ignore[no-untyped-call]
    return result


class _Rectify(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        output: Tensor,
        bias: Tensor | None,
        mask: Mask | None,
        place: Place,
        in_place: bool,
        spends_gradient: bool,
    ) -> Tensor:
        in_place = in_place and output.is_contiguous()
        source = place.contiguous(output.detach())
        result = output if in_place else place.like(source)
        num_rows, dim = source.shape
        # torch has no unsigned words that the workspace could hand out; the kernel reads the same bits.
        passed = place.empty((num_rows, -(-dim // LANES)), torch.int32)
        added = place.zeros((dim,), sum_dtype(source.dtype)) if bias is None else bias.detach().contiguous()
        scale = 1.0 if mask is None else mask.scale
        given = RowPass(RowStep.RECTIFY, source, result.detach(), added, passed, mask, scale)
        kernels_of(place).pass_rows(given, place)
        ctx.given = place, scale, bias is not None, spends_gradient
        ctx.save_for_backward(passed)
        if in_place:
            ctx.mark_dirty(output)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        place, scale, has_bias, spends_gradient = ctx.given
        (passed,) = ctx.saved_tensors
        given = place.contiguous(gradient)
        result = given if spends_gradient else place.like(given)
        kernels_of(place).pass_rows(RowPass(RowStep.SELECT, given, result, passed=passed, scale=scale), place)
        return result, column_sums(result, place) if has_bias else None, None, None, None, None
