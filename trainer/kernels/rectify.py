"""Bias, ReLU and dropout of a layer's output in one pass, forward and backward, compiled by numba.

The backward pass needs to know which features the layer let through: one bit each, packed. Neither the layer's output
nor its result is kept for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.kernels.arrays import array_dtype, as_array, sum_dtype
from gnnloom.trainer.kernels.bfloat16 import narrowed, widened
from gnnloom.trainer.kernels.dropout import Dropout, Mask, feature_hash, row_keys
from gnnloom.trainer.kernels.elementwise import column_sums

#: Of bfloat16 the bits; see :mod:`gnnloom.trainer.kernels.bfloat16`.
Dense = NDArray[Any]
Bits = NDArray[np.uint32]

#: Features of which one word holds the bits.
_LANES = 32


def rectify(
    output: Tensor, bias: Tensor | None, mask: Mask | None, dropout: Dropout, *, in_place: bool = False
) -> Tensor:
    """The dropout of relu(output + bias); differentiable.

    Args:
        output: (num_rows, dim) float32, float64 or bfloat16.
        bias: (dim,) of the same dtype, or float32 for bfloat16; None for zeros.
        mask: which features to drop; None for none of them.
        dropout: has the threads and the workspace.
        in_place: overwrite ``output``, which nothing else may need: neither another operation nor the backward pass of
            the one that formed it.

    Returns:
        (num_rows, dim).
    """
    result: Tensor = _Rectify.apply(output, bias, mask, dropout, in_place)  # type: ignore[no-untyped-call]
    return result


class _Rectify(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, output: Tensor, bias: Tensor | None, mask: Mask | None, dropout: Dropout, in_place: bool
    ) -> Tensor:
        space, threads = dropout.workspace, dropout.threads
        in_place = in_place and output.is_contiguous()
        source = space.contiguous(output.detach())
        result = output if in_place else space.like(source)
        num_rows, dim = source.shape
        # torch has no unsigned words that the workspace could hand out; the kernel reads the same bits.
        passed = space.empty((num_rows, -(-dim // _LANES)), torch.int32)
        sums = sum_dtype(source.dtype)
        # Of the dtype of the sums: a Python float would be a float64 and widen the loop's arithmetic.
        scale = array_dtype(sums).type(1 if mask is None else mask.scale)
        read, written, bits = as_array(source), as_array(result.detach()), as_array(passed).view(np.uint32)
        added = as_array(torch.zeros(dim, dtype=sums) if bias is None else bias.detach())

        def kernel(start: int, stop: int) -> None:
            if mask is None:
                _rectify_rows(read, added, written, bits, start, stop)
            else:
                _rectify_and_drop_rows(read, added, written, bits, *mask[:4], scale, start, stop)

        threads.run(kernel, threads.even_ranges(num_rows))
        ctx.given = dropout, scale, bias is not None
        ctx.save_for_backward(passed)
        if in_place:
            ctx.mark_dirty(output)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        dropout, scale, has_bias = ctx.given
        space, threads = dropout.workspace, dropout.threads
        given, (passed,) = space.contiguous(gradient), ctx.saved_tensors
        # Not in place: autograd may pass the same gradient to another operation.
        result = space.like(given)
        read, written, bits = as_array(given), as_array(result), as_array(passed).view(np.uint32)

        def kernel(start: int, stop: int) -> None:
            _select_rows(read, bits, scale, written, start, stop)

        threads.run(kernel, threads.even_ranges(len(given)))
        return result, column_sums(result, space) if has_bias else None, None, None, None


# A number that is not finite passes, so that a run that diverges shows it in its loss.
@njit(cache=True, nogil=True)
def _rectify_rows(source: Dense, bias: Dense, result: Dense, passed: Bits, start: int, stop: int) -> None:
    dim, zero = source.shape[1], bias.dtype.type(0)
    for row in range(start, stop):
        for word in range(passed.shape[1]):
            first, bits = word * _LANES, np.uint32(0)
            for lane in range(min(_LANES, dim - first)):
                value = widened(source[row, first + lane]) + bias[first + lane]
                value = zero if value <= zero else value  # noqa: FURB136 - a maximum may drop NaN
                result[row, first + lane] = narrowed(value, source[row, first + lane])
                bits |= np.uint32(np.uint32(value != zero) << np.uint32(lane))
            passed[row, word] = bits


@njit(cache=True, nogil=True)
def _rectify_and_drop_rows(
    source: Dense,
    bias: Dense,
    result: Dense,
    passed: Bits,
    vertex: NDArray[np.int64],
    first_column: int,
    key: np.uint64,
    threshold: np.uint32,
    scale: Any,
    start: int,
    stop: int,
) -> None:
    dim, zero = source.shape[1], bias.dtype.type(0)
    for row in range(start, stop):
        low, high = row_keys(vertex[row], key)
        for word in range(passed.shape[1]):
            first, bits = word * _LANES, np.uint32(0)
            for lane in range(min(_LANES, dim - first)):
                value = widened(source[row, first + lane]) + bias[first + lane]
                kept = feature_hash(first_column + first + lane, low, high) >= threshold
                value = value * scale if kept and not value <= zero else zero
                result[row, first + lane] = narrowed(value, source[row, first + lane])
                bits |= np.uint32(np.uint32(value != zero) << np.uint32(lane))
            passed[row, word] = bits


@njit(cache=True, nogil=True)
def _select_rows(gradient: Dense, passed: Bits, scale: Any, result: Dense, start: int, stop: int) -> None:
    dim, zero = gradient.shape[1], scale * 0
    for row in range(start, stop):
        for word in range(passed.shape[1]):
            first, bits = word * _LANES, passed[row, word]
            for lane in range(min(_LANES, dim - first)):
                chosen = np.uint32(bits >> np.uint32(lane)) & np.uint32(1)
                value = widened(gradient[row, first + lane]) * scale
                result[row, first + lane] = narrowed(value if chosen else zero, gradient[row, first + lane])
