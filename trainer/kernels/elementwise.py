"""Sums and conversions of matrices, differentiable, in place or in the workspace.

An overwritten matrix must not be needed elsewhere: neither by another operation nor by the backward pass of the
    operation that formed it. Products with a matrix or with the adjacency need their inputs or nothing, never their
    output. Sums over many
rows are formed chunk by chunk, many chunks per call: a call for every chunk would take longer than its work, and run on
one thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnloom.trainer.place.arrays import as_array, sum_dtype
from gnnloom.trainer.place.place import Place


def chunk_groups(num_rows: int, chunk: int, most: int, place: Place) -> Iterable[slice]:
    """Ranges of rows with up to ``most`` chunks each (at least one), then a range with the rest, less than a chunk."""
    return place.steps(_chunk_groups(num_rows, chunk, most))


def _chunk_groups(num_rows: int, chunk: int, most: int) -> Iterator[slice]:
    whole, step = num_rows // chunk * chunk, chunk * max(1, most)
    for start in range(0, whole, step):
        yield slice(start, min(start + step, whole))
    if whole < num_rows:
        yield slice(whole, num_rows)


def in_chunks(rows: Tensor, chunk: int) -> Tensor:
    """(number of chunks, rows of a chunk, dim) a view of the (num_rows, dim) rows of a group."""
    length = min(chunk, len(rows))
    return rows.view(len(rows) // length, length, rows.shape[1])


def add_in_order(total: Tensor, summands: Tensor, place: Place) -> None:
    """Add (count, *shape) summands to a total, one after the other, in the dtype of the total."""
    rows = place.empty((len(summands) + 1, *total.shape), total.dtype)
    rows[0], rows[1:] = total, summands
    # NumPy adds along the first axis row by row.
    np.add.reduce(as_array(rows), axis=0, out=as_array(total))


#: Rows of the partial sums from which a sum of bfloat16 columns is formed.
_SUMMED_ROWS = 1024
#: Count of numbers that are widened at a time: they stay in the caches.
_WIDENED_NUMBERS = 1 << 18


def converted(tensor: Tensor, dtype: torch.dtype, place: Place) -> Tensor:
    """A matrix, converted to a dtype; the matrix itself if it already has this dtype. Differentiable."""
    if tensor.dtype == dtype:
        return tensor
    result: Tensor = _Convert.apply(tensor, dtype, place)  # type: ignore[no-untyped-call]
    return result


def scaled_rows(matrix: Tensor, factors: Tensor, place: Place, out: Tensor | None = None) -> Tensor:
    """(num_rows, dim) a matrix whose rows are multiplied by factors; not differentiable.

    Args:
        matrix: (num_rows, dim).
        factors: (num_rows,) of the same dtype, or float32 for bfloat16.
        out: (num_rows, dim) of the dtype of ``matrix``, to overwrite, which may be ``matrix``; a new matrix by default.
    """
    out = place.like(matrix) if out is None else out
    if matrix.dtype == factors.dtype:
        return torch.mul(matrix, factors.unsqueeze(1), out=out)
    # torch multiplies numbers of two dtypes one by one. Conversion of some rows at a time takes a fifth of the time.
    for rows, wide in widened(matrix, factors.dtype, place):
        out[rows] = wide.mul_(factors[rows].unsqueeze(1))
    return out


def add_widened(total: Tensor, summand: Tensor, place: Place) -> None:
    """Add a matrix to another one in place; not differentiable.

    Args:
        total: (num_rows, dim).
        summand: (num_rows, dim) of the same dtype, or bfloat16 for float32.
    """
    if summand.dtype == total.dtype:
        total += summand
        return
    # As for :func:`scaled_rows`: torch adds numbers of two dtypes one by one.
    for rows, wide in widened(summand, total.dtype, place):
        total[rows] += wide


def widened_rows(matrix: Tensor) -> int:
    """Number of rows of a matrix that are widened at a time."""
    return max(1, _WIDENED_NUMBERS // max(1, matrix.shape[1]))


def widened(matrix: Tensor, dtype: torch.dtype, place: Place) -> Iterator[tuple[slice, Tensor]]:
    """Ranges of rows, each with a copy of the rows in another dtype, in memory that the next range overwrites."""
    step = widened_rows(matrix)
    scratch = place.empty((min(step, len(matrix)), matrix.shape[1]), dtype)
    for start in place.steps(range(0, len(matrix), step)):
        rows = slice(start, min(start + step, len(matrix)))
        yield rows, scratch[: rows.stop - start].copy_(matrix[rows])


def column_sums(matrix: Tensor, place: Place) -> Tensor:
    """(dim,) sums of the columns of a (num_rows, dim) matrix, float32 for bfloat16; not differentiable."""
    if matrix.dtype == sum_dtype(matrix.dtype):
        return matrix.sum(0)
    # torch would convert the whole matrix at once.
    total = place.zeros(matrix.shape[1:], sum_dtype(matrix.dtype))
    most = max(1, _WIDENED_NUMBERS // max(1, _SUMMED_ROWS * matrix.shape[1]))
    scratch = place.empty((min(most * _SUMMED_ROWS, len(matrix)), matrix.shape[1]), total.dtype)
    for rows in chunk_groups(len(matrix), _SUMMED_ROWS, most, place):
        wide = scratch[: rows.stop - rows.start].copy_(matrix[rows])
        add_in_order(total, in_chunks(wide, _SUMMED_ROWS).sum(1), place)
    return total


def add_bias(output: Tensor, bias: Tensor, place: Place, *, in_place: bool = True) -> Tensor:
    """``output`` plus the bias in every row, in place or in the workspace.

    Args:
        output: (num_rows, dim).
        bias: (dim,) of the same dtype, or float32 for bfloat16.
    """
    result: Tensor = _AddBias.apply(output, bias, place, in_place)  # type: ignore[no-untyped-call]
    return result


def elu(output: Tensor, place: Place, *, in_place: bool = False) -> Tensor:
    """The exponential linear unit of every number (Clevert, Unterthiner, Hochreiter, ICLR 2016); differentiable.

    Args:
        in_place: overwrite ``output``.
    """
    result: Tensor = _Elu.apply(output, place, in_place)  # type: ignore[no-untyped-call]
    return result


def matrix_sum(first: Tensor, second: Tensor, place: Place) -> Tensor:
    """The sum of two matrices, in the workspace; differentiable."""
    result: Tensor = _Sum.apply(first, second, place)  # type: ignore[no-untyped-call]
    return result


def add_to(output: Tensor, other: Tensor, place: Place) -> Tensor:
    """``output`` plus another matrix of its shape, in place.

    Args:
        other: of the dtype of ``output``, or bfloat16 for float32.
    """
    result: Tensor = _AddTo.apply(output, other, place)  # type: ignore[no-untyped-call]
    return result


def scaled_sum(matrix: Tensor, factor: Tensor, other: Tensor, place: Place) -> Tensor:
    """``factor`` times a matrix, plus another one of its shape.

    Args:
        factor: (1,) of the same dtype, or float32 for bfloat16.
    """
    result: Tensor = _ScaledSum.apply(matrix, factor, other, place)  # type: ignore[no-untyped-call]
    return result


def fork(matrix: Tensor, place: Place) -> tuple[Tensor, Tensor]:
    """A matrix for two uses, whose gradients are then summed in the workspace instead of by autograd."""
    if not matrix.requires_grad:
        return matrix, matrix
    first, second = _Fork.apply(matrix, place)  # type: ignore[no-untyped-call]
    return first, second


def backward_from(result: Tensor, gradient: Tensor, place: Place) -> Tensor:
    """A number through which a gradient goes back to a result: its backward pass begins with that gradient.

    ``result.backward(gradient)`` would do the same, and compare the shapes with a part of torch's compiler, whose
    import takes half a second and 37 MB.

    Args:
        gradient: of the shape and the dtype of ``result``.
    """
    number: Tensor = _BackwardFrom.apply(result, gradient, place)  # type: ignore[no-untyped-call]
    return number


def give_up(matrix: Tensor) -> None:
    """Free the memory of a matrix to which callers still refer, unless another tensor shares it.

    The matrix is empty from here on: reading it is an error, not garbage. Autograd's record of its history stays.
    """
    matrix.data = matrix.new_empty(0)


class _Convert(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, dtype: torch.dtype, place: Place) -> Tensor:
        ctx.given = tensor.dtype, place
        return place.empty(tensor.shape, dtype).copy_(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        dtype, place = ctx.given
        return place.empty(gradient.shape, dtype).copy_(gradient), None, None


class _Fork(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, place: Place) -> tuple[Tensor, Tensor]:
        ctx.place = place
        # The same memory in other tensors: autograd treats a returned input as an identity.
        return matrix.detach(), matrix.detach()

    @staticmethod
    def backward(ctx: Any, first: Tensor, second: Tensor) -> tuple[Tensor, None]:
        return torch.add(first, second, out=ctx.place.like(first)), None


class _BackwardFrom(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, result: Tensor, gradient: Tensor, place: Place) -> Tensor:  # noqa: ARG004
        ctx.gradient = gradient
        return place.zeros((), gradient.dtype)

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None, None]:
        return ctx.gradient, None, None


class _AddBias(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, output: Tensor, bias: Tensor, place: Place, in_place: bool) -> Tensor:
        ctx.place = place
        result = output if in_place else place.like(output)
        if in_place:
            ctx.mark_dirty(output)
        if output.dtype == bias.dtype:
            return torch.add(output.detach(), bias.detach(), out=result)
        # torch would convert the whole matrix at once.
        for rows, wide in widened(output, bias.dtype, place):
            result[rows] = wide.add_(bias)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return gradient, column_sums(gradient, ctx.place), None, None


class _Elu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, output: Tensor, place: Place, in_place: bool) -> Tensor:
        result = output if in_place else place.like(output).copy_(output)
        if in_place:
            ctx.mark_dirty(output)
        torch.nn.functional.elu(result, inplace=True)
        ctx.save_for_backward(result)
        ctx.place = place
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (result,) = ctx.saved_tensors
        found = ctx.place.like(gradient)
        # The derivative follows from the result: 1 above 0, and the result plus 1 below.
        torch.ops.aten.elu_backward.grad_input(gradient, 1, 1, 1, True, result, grad_input=found)
        return found, None, None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, first: Tensor, second: Tensor, place: Place) -> Tensor:  # noqa: ARG004
        return torch.add(first.detach(), second.detach(), out=place.like(first))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # noqa: ARG004
        return gradient, gradient, None


class _AddTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, output: Tensor, other: Tensor, place: Place) -> Tensor:
        ctx.given = other.dtype, place
        ctx.mark_dirty(output)
        add_widened(output, other.detach(), place)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        return gradient, converted(gradient, *ctx.given), None


class _ScaledSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, factor: Tensor, other: Tensor, place: Place) -> Tensor:
        ctx.place = place
        ctx.save_for_backward(matrix, factor)
        # As a number: for a tensor of another dtype, torch would convert whole matrices in memory of its own.
        return torch.mul(matrix, factor.item(), out=place.like(matrix)).add_(other.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        matrix, factor = ctx.saved_tensors
        place = ctx.place
        product = torch.mul(gradient, matrix, out=place.like(gradient))
        is_wide = product.dtype == factor.dtype
        of_factor = (product.sum((0, 1)) if is_wide else column_sums(product, place).sum()).reshape(1)
        # The sum has been formed, so its terms may be overwritten.
        of_matrix = torch.mul(gradient, factor.item(), out=product) if ctx.needs_input_grad[0] else None
        return of_matrix, of_factor, gradient, None
