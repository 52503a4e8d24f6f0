"""Dropout whose mask is computed, not drawn: a function of the seed, epoch, layer, vertex and feature.

So the same vertices lose the same features whatever rank holds them, and nothing is kept for the
backward pass, which computes the mask again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.kernels.threads import Threads
from gnnloom.trainer.layout.layout import Layout


@dataclass(frozen=True)
class Dropout:
    """Sets features to zero with a probability and scales the others, so that the expectation stays.

    Attributes:
        probability: of a zero, in [0, 1).
        seed: of the run.
    """

    probability: float
    seed: int
    threads: Threads

    def apply(self, features: Tensor, layout: Layout, dim: int, epoch: int, layer: int) -> Tensor:
        """Drop from this rank's share of a matrix of width ``dim``; differentiable.

        Args:
            features: (num_rows, num_columns) of ``layout``.
        """
        if self.probability == 0:
            return features
        key = np.random.SeedSequence([self.seed, epoch, layer]).generate_state(1, np.uint64)[0]
        mask = _Mask(key, layout.vertex, layout.columns(dim).start, self)
        result: Tensor = _Drop.apply(features, mask)  # type: ignore[no-untyped-call]
        return result


@dataclass(frozen=True)
class _Mask:
    key: np.uint64
    vertex: NDArray[np.int64]
    first_column: int
    dropout: Dropout

    def times(self, features: Tensor) -> Tensor:
        source = features.contiguous()
        result = torch.empty_like(source)
        probability = self.dropout.probability
        threshold = np.uint32(min(round(probability * 2**32), 2**32 - 1))
        scale = source.numpy().dtype.type(1 / (1 - probability))

        def kernel(start: int, stop: int) -> None:
            _drop_rows(
                source.numpy(), result.numpy(), self.vertex, self.first_column, self.key, threshold, scale, start, stop
            )

        self.dropout.threads.run(kernel, self.dropout.threads.even_ranges(len(source)))
        return result


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, mask: _Mask) -> Tensor:
        ctx.mask = mask
        return mask.times(features.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.mask.times(gradient), None


@njit(cache=True, nogil=True)
def _drop_rows(
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
    zero = source.dtype.type(0)
    for row in range(start, stop):
        row_key = _mix64(np.uint64(vertex[row]) ^ key)
        low, high = np.uint32(row_key), np.uint32(row_key >> np.uint64(32))
        for column in range(source.shape[1]):
            kept = _mix32(np.uint32(np.uint32(first_column + column) + low), high) >= threshold
            result[row, column] = source[row, column] * scale if kept else zero


@njit(cache=True, nogil=True)
def _mix64(value: np.uint64) -> np.uint64:
    """SplitMix64's finalizer (Steele, Lea, Flood, OOPSLA 2014): every input bit reaches every output bit."""
    value += np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@njit(cache=True, nogil=True)
def _mix32(value: np.uint32, key: np.uint32) -> np.uint32:
    """Two rounds of a 32-bit finalizer with a key between them; 32 bits wide so that it fills a vector register."""
    value = np.uint32((value ^ (value >> np.uint32(16))) * np.uint32(0x7FEB352D))
    value = np.uint32((value ^ (value >> np.uint32(15))) * np.uint32(0x846CA68B))
    value = np.uint32((value ^ (value >> np.uint32(16))) ^ key)
    value = np.uint32((value ^ (value >> np.uint32(15))) * np.uint32(0x7FEB352D))
    value = np.uint32((value ^ (value >> np.uint32(16))) * np.uint32(0x846CA68B))
    return np.uint32(value ^ (value >> np.uint32(15)))
