"""Dropout whose mask is a function of the seed, epoch, layer, vertex and feature instead of a random draw.

The same vertices lose the same features whichever rank holds them. No mask is stored for the backward pass, which
computes it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.kernels.arrays import array_dtype, as_array, sum_dtype
from gnnloom.trainer.kernels.bfloat16 import narrowed, widened
from gnnloom.trainer.kernels.threads import Threads
from gnnloom.trainer.kernels.workspace import Workspace


@dataclass(frozen=True)
class Dropout:
    """Sets features to zero with a probability, and scales the others so that the expected value stays the same.

    Attributes:
        probability: probability of a zero, in [0, 1).
        seed: the run's seed.
        workspace: where the results are; of its own by default.
    """

    probability: float
    seed: int
    threads: Threads
    workspace: Workspace = field(default_factory=Workspace)

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
        return Mask(vertex, first_column, key, threshold, 1 / (1 - self.probability))


class Mask(NamedTuple):
    """Which features of a rectangle are dropped in one epoch and layer: those whose hash is below a threshold.

    Attributes:
        vertex: (num_rows,) int64 global ids of the rows.
        first_column: column of the whole matrix at which the rectangle begins.
        key: of the epoch and layer.
        threshold: of the 32-bit hashes.
        scale: of the features that are kept.
    """

    vertex: NDArray[np.int64]
    first_column: int
    key: np.uint64
    threshold: np.uint32
    scale: float


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
    source = dropout.workspace.contiguous(features)
    result = dropout.workspace.like(source)
    # Of the dtype of the loop: a Python float would be a float64 and widen its arithmetic.
    scale = array_dtype(sum_dtype(source.dtype)).type(mask.scale)
    read, written = as_array(source), as_array(result)

    def kernel(start: int, stop: int) -> None:
        drop_rows(read, written, mask.vertex, mask.first_column, mask.key, mask.threshold, scale, start, stop)

    # Rows of a dense matrix all take the same time, so the ranges are even.
    dropout.threads.run(kernel, dropout.threads.even_ranges(len(source)))
    return result


@njit(cache=True, nogil=True)
def drop_rows(
    source: NDArray[Any],
    result: NDArray[Any],
    vertex: NDArray[np.int64],
    first_column: int,
    key: np.uint64,
    threshold: np.uint32,
    scale: Any,
    start: int,
    stop: int,
) -> None:
    """Write rows ``start`` to ``stop`` of the masked, scaled features."""
    zero = scale * 0
    for row in range(start, stop):
        low, high = row_keys(vertex[row], key)
        for column in range(source.shape[1]):
            kept = feature_hash(first_column + column, low, high) >= threshold
            value = widened(source[row, column]) * scale if kept else zero
            result[row, column] = narrowed(value, source[row, column])


@njit(cache=True, nogil=True)
def row_keys(vertex: np.int64, key: np.uint64) -> tuple[np.uint32, np.uint32]:
    """One 64-bit hash per vertex, in two halves, which feed a cheaper 32-bit hash per feature."""
    row_key = _mix64(np.uint64(vertex) ^ key)
    return np.uint32(row_key), np.uint32(row_key >> np.uint64(32))


@njit(cache=True, nogil=True)
def feature_hash(column: int, low: np.uint32, high: np.uint32) -> np.uint32:
    """The hash that decides whether a feature is dropped, from the keys of its row; the compiler vectorizes it."""
    # numba widens sums and products of uint32 to 64 bits; the casts back keep vectors of 32-bit lanes.
    return _mix32(np.uint32(np.uint32(column) + low), high)


@njit(cache=True, nogil=True)
def _mix64(value: np.uint64) -> np.uint64:
    """SplitMix64's step and finalizer (Steele, Lea, Flood, OOPSLA 2014): each input bit affects each output bit."""
    # Sums and products wrap modulo 2^64, as the generator is defined.
    value += np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@njit(cache=True, nogil=True)
def _mix32(value: np.uint32, key: np.uint32) -> np.uint32:
    """Two rounds of a 32-bit finalizer with a key between them; 32 bits wide, so that more fit a vector register."""
    value = np.uint32((value ^ (value >> np.uint32(16))) * np.uint32(0x7FEB352D))
    value = np.uint32((value ^ (value >> np.uint32(15))) * np.uint32(0x846CA68B))
    value = np.uint32((value ^ (value >> np.uint32(16))) ^ key)
    value = np.uint32((value ^ (value >> np.uint32(15))) * np.uint32(0x7FEB352D))
    value = np.uint32((value ^ (value >> np.uint32(16))) * np.uint32(0x846CA68B))
    return np.uint32(value ^ (value >> np.uint32(15)))
