"""Scalar products of the rows of many pairs, and their gradients, which are two products with a sparse matrix.

Pairs are the entries of a matrix G whose rows are sources and whose columns are targets. The scores are the entries of
L R^T where G has some ("sampled dense-dense product"); with their gradients as the entries of G, the gradient of L is G
R, and the gradient of R is G^T L. So no array has a row for each pair, and the work equals products with an adjacency.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.csr import CSR, index_dtype
from gnnloom.storage.matrix.transpose import transposed
from gnnloom.trainer.kernels.dispatch import score_entries, sparse_product, with_entries
from gnnloom.trainer.place.place import Place


def row_products_of_pairs(
    left: Tensor, right: Tensor, source: NDArray[np.int64], targets: NDArray[np.int64], place: Place
) -> Tensor:
    """Scalar products of rows of pairs; differentiable. Communicates nothing.

    Args:
        left: (num_rows, dim) rows of sources.
        right: (num_rows, dim) rows of targets; the same tensor if they are the same, so that it has one gradient.
        source: (num_pairs,) int64 numbers of rows; fastest if they ascend.
        targets: (num_pairs, count) int64 numbers of rows.

    Returns:
        (num_pairs, count).
    """
    order = None if (source[1:] >= source[:-1]).all() else np.argsort(source, kind="stable")
    if order is not None:
        source, targets = source[order], targets[order]
    pairs = _Pairs.of(source, targets, len(right))
    given = (left, None) if right is left else (left, right)
    result: Tensor = _Products.apply(*given, pairs, place)  # type: ignore[no-untyped-call]
    found = result.view(targets.shape)
    if order is None:
        return found
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return found[place.from_numpy(back)]


@dataclass(frozen=True)
class _Pairs:
    """Pairs as entries of a matrix.

    Attributes:
        row: (num_entries,) sources.
        matrix: its rows are not sorted, and it has no weights.
    """

    row: NDArray[Any]
    matrix: CSR

    @classmethod
    def of(cls, source: NDArray[np.int64], targets: NDArray[np.int64], num_rows: int) -> _Pairs:
        kind, count = index_dtype(num_rows), targets.shape[1]
        indptr = np.zeros(num_rows + 1, np.int64)
        np.cumsum(np.bincount(source, minlength=num_rows) * count, out=indptr[1:])
        columns = targets.reshape(-1).astype(kind)
        return cls(np.repeat(source.astype(kind), count), CSR(0, indptr, columns, None, num_rows))


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor | None, pairs: _Pairs, place: Place) -> Tensor:
        ctx.save_for_backward(left, right)
        ctx.given = pairs, place
        other = left if right is None else right
        return score_entries(left.detach(), other.detach(), pairs.row, pairs.matrix.indices, place)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        left, right = ctx.saved_tensors
        pairs, place = ctx.given
        matrix = with_entries(pairs.matrix, place.contiguous(gradient))
        if right is None:
            # One array has the sum of both.
            return _product(transposed(matrix), left, place, _product(matrix, left, place)), None, None, None
        of_left, of_right, *_ = ctx.needs_input_grad
        found = (
            _product(matrix, right, place) if of_left else None,
            _product(transposed(matrix), left, place) if of_right else None,
        )
        return *found, None, None


def _product(matrix: CSR, dense: Tensor, place: Place, total: Tensor | None = None) -> Tensor:
    """A product, or the total with the product added to it."""
    out = place.empty((matrix.num_rows, dense.shape[1]), dense.dtype) if total is None else total
    ones, dense = place.lasting((0,), dense.dtype), place.contiguous(dense.detach())
    sparse_product(matrix, place, dense.dtype).multiply(dense, out, ones, accumulate=total is not None)
    return out
