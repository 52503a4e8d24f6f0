"""What every sparse product checks and converts before its kernel runs."""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor

from gnnloom.trainer.kernels.sparse_rows import SparseRows
from gnnloom.trainer.place.arrays import sum_dtype

#: Stands for factors that are all 1.
_ONES: Final = torch.empty(0)


class Operands(NamedTuple):
    """Checked operands of one product.

    Attributes:
        dense: (num_columns, dim); its columns are contiguous.
        out: (num_rows, dim); its columns are contiguous.
        row_scale: (num_rows,) of the dtype of the sums, or (0,) for ones.
        column_scale: (num_columns,) likewise.
    """

    dense: Tensor
    out: Tensor
    row_scale: Tensor
    column_scale: Tensor


def prepare(
    rows: SparseRows,
    dtype: torch.dtype,
    dense: Tensor,
    out: Tensor,
    row_scale: Tensor,
    column_scale: Tensor | None,
    *,
    accumulate: bool,
) -> Operands | None:
    """Check the operands of a product, and write the zeros of rows that the kernel does not visit.

    If the matrix has weights, the factors of columns are multiplied into ``dense``.

    Returns:
        What the kernel reads and writes; None if nothing is left to do.

    Raises:
        ValueError: a shape, dtype or layout does not match.
    """
    factors = _ONES if column_scale is None else column_scale
    operands = _checked(rows, dtype, Operands(dense, out, row_scale, factors))
    # Nothing to add. Without `accumulate` the kernel must still write zeros.
    if accumulate and rows.nnz == 0:
        return None
    # Rows that are not listed have no entries.
    if not accumulate and not rows.is_subset and rows.target is not None:
        out.zero_()
    return operands


def _checked(rows: SparseRows, dtype: torch.dtype, operands: Operands) -> Operands:
    dense, out, row_scale, column_scale = operands
    if dense.dim() != 2 or dense.shape[0] != rows.num_columns or out.shape != (rows.num_rows, dense.shape[1]):
        shapes = f"{tuple(dense.shape)} into {tuple(out.shape)}"
        raise ValueError(f"sparse product: ({rows.num_rows}, {rows.num_columns}) times {shapes}")
    for name, tensor, allowed in (("dense", dense, (dtype,)), ("out", out, (dtype, sum_dtype(dtype)))):
        if tensor.dtype not in allowed:
            raise ValueError(f"sparse product: {name} is {tensor.dtype}, not {dtype}")
        if tensor.numel() and tensor.shape[1] > 1 and tensor.stride(1) != 1:
            raise ValueError(f"sparse product: the rows of {name} are not contiguous")
    for name, scale, length in (("row", row_scale, rows.num_rows), ("column", column_scale, rows.num_columns)):
        if len(scale):
            _check_scale(name, scale, length, sum_dtype(dtype))
    # No normalization has both weights and factors of columns, so no kernel has both.
    if rows.data is not None and len(column_scale):
        scaled = (dense * column_scale.unsqueeze(1)).to(dtype)
        return operands._replace(dense=scaled, column_scale=column_scale[:0])
    return operands


def _check_scale(name: str, scale: Tensor, length: int, dtype: torch.dtype) -> None:
    if scale.shape != (length,) or scale.dtype != dtype or not scale.is_contiguous():
        found = f"{tuple(scale.shape)} {scale.dtype}"
        raise ValueError(f"sparse product: {name} factors are {found}, not ({length},) {dtype}")
