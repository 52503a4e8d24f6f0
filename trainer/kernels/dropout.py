"""Dropout whose mask is a function of the seed, epoch, layer, vertex and feature instead of a random draw.

The same vertices lose the same features whichever rank holds them. No mask is stored for the backward pass, which
computes it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.kernels.contract import Mask, RowPass, Step
from gnnloom.trainer.kernels.row_pass import run_pass
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
        """Which features of a rectangle are dropped in one epoch and layer; None if the probability is 0."""
        if self.probability == 0:
            return None
        # SeedSequence hashes its numbers, so consecutive epochs and layers have unrelated keys.
        key = np.random.SeedSequence([self.seed, epoch, layer]).generate_state(1, np.uint64)[0]
        # A feature is dropped if its 32-bit hash is below the threshold; the cap keeps a probability near 1 in range.
        threshold = np.uint32(min(round(self.probability * 2**32), 2**32 - 1))
        # The ids as the kernels read them.
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
    run_pass(RowPass(Step.DROP, source, result, mask=mask, scale=mask.scale), dropout.place)
    return result
