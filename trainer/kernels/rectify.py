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
from gnnloom.trainer.kernels.bfloat16 import narrow_row, widen_row
from gnnloom.trainer.kernels.dropout import Dropout, Mask, feature_hash, row_keys
from gnnloom.trainer.kernels.elementwise import column_sums

Dense = NDArray[Any]
Bits = NDArray[np.uint32]
#: Rows of bfloat16; see :mod:`gnnloom.trainer.kernels.bfloat16`.
Stored = NDArray[np.uint16]

#: Features of which one word holds the bits.
_LANES = 32


def rectify(
    output: Tensor,
    bias: Tensor | None,
    mask: Mask | None,
    dropout: Dropout,
    *,
    in_place: bool = False,
    spends_gradient: bool = False,
) -> Tensor:
    """The dropout of relu(output + bias); differentiable.

    Args:
        output: (num_rows, dim) float32, float64 or bfloat16.
        bias: (dim,) of the same dtype, or float32 for bfloat16; None for zeros.
        mask: which features to drop; None for none of them.
        dropout: has the threads and the workspace.
        in_place: overwrite ``output``, which nothing else may need: neither another operation nor the backward pass of
            the one that formed it.
        spends_gradient: backward, overwrite the gradient of the result, which autograd must not pass to another
            operation as well.

    Returns:
        (num_rows, dim).
    """
    result: Tensor = _Rectify.apply(output, bias, mask, dropout, in_place, spends_gradient)  # type: ignore[no-untyped-call]
    return result


class _Rectify(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        output: Tensor,
        bias: Tensor | None,
        mask: Mask | None,
        dropout: Dropout,
        in_place: bool,
        spends_gradient: bool,
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
        is_stored = source.dtype != sums

        def kernel(start: int, stop: int) -> None:
            if mask is None:
                plain = _rectify_stored_rows if is_stored else _rectify_rows
                plain(read, added, written, bits, start, stop)
            else:
                drop = _rectify_and_drop_stored_rows if is_stored else _rectify_and_drop_rows
                drop(read, added, written, bits, *mask[:4], scale, start, stop)

        threads.run(kernel, threads.even_ranges(num_rows))
        ctx.given = dropout, scale, bias is not None, spends_gradient
        ctx.save_for_backward(passed)
        if in_place:
            ctx.mark_dirty(output)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        dropout, scale, has_bias, spends_gradient = ctx.given
        space, threads = dropout.workspace, dropout.threads
        given, (passed,) = space.contiguous(gradient), ctx.saved_tensors
        result = given if spends_gradient else space.like(given)
        read, written, bits = as_array(given), as_array(result), as_array(passed).view(np.uint32)
        select = _select_stored_rows if given.dtype == torch.bfloat16 else _select_rows

        def kernel(start: int, stop: int) -> None:
            select(read, bits, scale, written, start, stop)

        threads.run(kernel, threads.even_ranges(len(given)))
        return result, column_sums(result, space) if has_bias else None, None, None, None, None


# A number that is not finite passes, so that a run that diverges shows it in its loss.
@njit(cache=True, nogil=True)
def _rectify_row(source: Dense, bias: Dense, result: Dense, passed: Bits) -> None:
    zero = bias.dtype.type(0)
    for column in range(len(source)):
        value = source[column] + bias[column]
        result[column] = zero if value <= zero else value  # noqa: FURB136 - a maximum may drop NaN
    _pack_signs(result, passed)


@njit(cache=True, nogil=True)
def _rectify_and_drop_row(
    source: Dense,
    bias: Dense,
    result: Dense,
    passed: Bits,
    first_column: int,
    keys: tuple[np.uint32, np.uint32],
    threshold: np.uint32,
    scale: Any,
) -> None:
    zero, (low, high) = bias.dtype.type(0), keys
    for column in range(len(source)):
        value = source[column] + bias[column]
        kept = feature_hash(first_column + column, low, high) >= threshold
        result[column] = value * scale if kept and not value <= zero else zero
    _pack_signs(result, passed)


@njit(cache=True, nogil=True)
def _pack_signs(values: Dense, words: Bits) -> None:
    """Set the bits of the values that are not zero."""
    dim, zero = len(values), values.dtype.type(0)
    for word in range(len(words)):
        first, bits = word * _LANES, np.uint32(0)
        for lane in range(min(_LANES, dim - first)):
            bits |= np.uint32(np.uint32(values[first + lane] != zero) << np.uint32(lane))
        words[word] = bits


@njit(cache=True, nogil=True)
def _select_row(gradient: Dense, passed: Bits, scale: Any, result: Dense) -> None:
    dim, zero = len(gradient), gradient.dtype.type(0)
    for word in range(len(passed)):
        first, bits = word * _LANES, passed[word]
        for lane in range(min(_LANES, dim - first)):
            chosen = np.uint32(bits >> np.uint32(lane)) & np.uint32(1)
            result[first + lane] = gradient[first + lane] * scale if chosen else zero


@njit(cache=True, nogil=True)
def _rectify_rows(source: Dense, bias: Dense, result: Dense, passed: Bits, start: int, stop: int) -> None:
    for row in range(start, stop):
        _rectify_row(source[row], bias, result[row], passed[row])


@njit(cache=True, nogil=True)
def _rectify_stored_rows(
    source: Stored, bias: NDArray[np.float32], result: Stored, passed: Bits, start: int, stop: int
) -> None:
    scratch = np.empty(source.shape[1], np.uint32)
    values = scratch.view(np.float32)
    for row in range(start, stop):
        widen_row(source[row], scratch)
        _rectify_row(values, bias, values, passed[row])
        narrow_row(scratch, result[row])


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
    for row in range(start, stop):
        keys = row_keys(vertex[row], key)
        _rectify_and_drop_row(source[row], bias, result[row], passed[row], first_column, keys, threshold, scale)


@njit(cache=True, nogil=True)
def _rectify_and_drop_stored_rows(
    source: Stored,
    bias: NDArray[np.float32],
    result: Stored,
    passed: Bits,
    vertex: NDArray[np.int64],
    first_column: int,
    key: np.uint64,
    threshold: np.uint32,
    scale: Any,
    start: int,
    stop: int,
) -> None:
    scratch = np.empty(source.shape[1], np.uint32)
    values = scratch.view(np.float32)
    for row in range(start, stop):
        keys = row_keys(vertex[row], key)
        widen_row(source[row], scratch)
        _rectify_and_drop_row(values, bias, values, passed[row], first_column, keys, threshold, scale)
        narrow_row(scratch, result[row])


@njit(cache=True, nogil=True)
def _select_rows(gradient: Dense, passed: Bits, scale: Any, result: Dense, start: int, stop: int) -> None:
    for row in range(start, stop):
        _select_row(gradient[row], passed[row], scale, result[row])


@njit(cache=True, nogil=True)
def _select_stored_rows(gradient: Stored, passed: Bits, scale: Any, result: Stored, start: int, stop: int) -> None:
    scratch = np.empty(gradient.shape[1], np.uint32)
    values = scratch.view(np.float32)
    for row in range(start, stop):
        widen_row(gradient[row], scratch)
        _select_row(values, passed[row], scale, values)
        narrow_row(scratch, result[row])
