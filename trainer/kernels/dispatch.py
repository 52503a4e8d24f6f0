"""The only entry point to the kernels; gets each kernel from the table of the place.

To compute elsewhere, or not at all, make the place with another table: a class with the methods of
:class:`gnnloom.trainer.place.place.Kernels`. No caller changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.csr import CSR
from gnnloom.trainer.kernels.c.library import best_library
from gnnloom.trainer.kernels.elementwise import (
    add_bias,
    add_to,
    add_widened,
    backward_from,
    column_sums,
    converted,
    elu,
    fork,
    give_up,
    matrix_sum,
    scaled_rows,
    scaled_sum,
)
from gnnloom.trainer.kernels.gemm import matmul, seconds_of_weight_gradients, weight_gradient
from gnnloom.trainer.kernels.heads import head_mean, head_scores, head_sums
from gnnloom.trainer.kernels.row_passes import Dropout, rectify
from gnnloom.trainer.kernels.sparse_rows import PackedRows, listed_entries, listed_rows
from gnnloom.trainer.kernels.table import kernels_of
from gnnloom.trainer.kernels.unperformed import Unperformed, Unwritten, even_offsets, performed, with_values
from gnnloom.trainer.kernels.without_values import UnreadRows, place_without_values
from gnnloom.trainer.place.arrays import as_array
from gnnloom.trainer.place.contract import (
    RUN_COLUMNS,
    AttentionInputs,
    ColumnScale,
    EdgeSoftmax,
    Progress,
    RowSink,
    RowsOnDisk,
    SoftmaxGradient,
    SoftmaxState,
    SparseProduct,
    SparseRows,
)
from gnnloom.trainer.place.place import Place

__all__ = [
    "AttentionInputs",
    "ColumnScale",
    "Dropout",
    "EdgeSoftmax",
    "PackedRows",
    "Progress",
    "RowSink",
    "SoftmaxGradient",
    "SoftmaxState",
    "SparseProduct",
    "SparseRows",
    "Unperformed",
    "UnreadRows",
    "Unwritten",
    "add_bias",
    "add_to",
    "add_widened",
    "backward_from",
    "column_scale",
    "column_sums",
    "converted",
    "edge_softmax",
    "elu",
    "even_offsets",
    "fork",
    "give_up",
    "head_mean",
    "head_scores",
    "head_sums",
    "listed_entries",
    "listed_rows",
    "matmul",
    "matrix_sum",
    "normal_rows",
    "performed",
    "place_without_values",
    "products_by_columns",
    "rectify",
    "scaled_rows",
    "scaled_sum",
    "score_block",
    "score_entries",
    "score_pairs",
    "seconds_of_weight_gradients",
    "softmax_state",
    "sparse_product",
    "sparse_product_kernel",
    "weight_gradient",
    "with_entries",
    "with_values",
]


def sparse_product(
    matrix: CSR | SparseRows | RowsOnDisk, place: Place, dtype: torch.dtype | None = None
) -> SparseProduct:
    """Prepare a matrix for products with dense ones; shares its memory, or reads it from disk each time.

    Weights are converted once to the dtype of sums.

    Args:
        dtype: of the dense matrices; None for the dtype of features.
    """
    rows = listed_rows(matrix) if isinstance(matrix, CSR) else matrix
    return kernels_of(place).sparse_product(rows, place, dtype or place.feature_dtype)


def products_by_columns(matrix: CSR, parts: Sequence[slice], place: Place) -> list[SparseProduct]:
    """For every range of columns, a product with the matrix's entries there; the products share the matrix's memory.

    Each takes the whole dense matrix and reads only the rows of its range, so other rows may still be on their way.

    Args:
        parts: one range after the other, from the first column to the last.
    """
    return kernels_of(place).products_by_columns(matrix, parts, place)


def sparse_product_kernel() -> str:
    """Name of the kernel of sparse products, as ``gnnloom doctor`` reports it."""
    return f"C with {best_library().instruction_set}"


#: Up to this number, factors of columns (1 MiB of float32) stay in the caches.
_LEAST_FOR_RUNS: Final = 1 << 18


def column_scale(factors: Tensor, place: Place) -> ColumnScale | None:
    """Factors of columns for sparse products, with factors of runs if most runs have one factor.

    Args:
        factors: (num_columns,) contiguous, of the dtype of sums; or (0,) if all are 1, for which the result is None.
    """
    if len(factors) == 0:
        return None
    if len(factors) < _LEAST_FOR_RUNS:
        return ColumnScale(factors)
    runs = place.lasting((-(-len(factors) // RUN_COLUMNS),), factors.dtype)
    return ColumnScale(factors, runs if kernels_of(place).find_runs(factors, runs) else None)


def edge_softmax(pattern: CSR, negative_slope: float, place: Place, *, dynamic: bool = False) -> EdgeSoftmax:
    """Prepare a pattern for attention of its rows over its columns; weights are ignored.

    Args:
        negative_slope: slope of the LeakyReLU below 0.
        dynamic: with the scores of GATv2.
    """
    return kernels_of(place).edge_softmax(pattern, negative_slope, place, dynamic=dynamic)


def softmax_state(weighted: Tensor, num_rows: int, heads: int, place: Place) -> SoftmaxState:
    """The running sums of an edge softmax, without values, around the memory of the weighted sums."""
    shape = num_rows, heads
    return SoftmaxState(place.empty(shape, weighted.dtype), place.empty(shape, weighted.dtype), weighted)


def score_block(left: Tensor, right: Tensor, place: Place) -> Tensor:
    """Scalar products of every row of one matrix with every row of another; not differentiable.

    The products of two numbers are added one after the other, from the first column on, without fused multiplications.
    So two equal pairs of rows have equal scores in any block, on any number of ranks and threads.

    Args:
        left: (num_left, dim) float32 or float64.
        right: (num_right, dim) of the same dtype.

    Returns:
        (num_left, num_right).
    """
    out = place.empty((len(left), len(right)), left.dtype)
    kernels_of(place).score_block(left, right, out, place)
    return out


def score_entries(left: Tensor, right: Tensor, rows: NDArray[Any], columns: NDArray[Any], place: Place) -> Tensor:
    """(num_entries,) scalar products of rows of one matrix with rows of another, in the fastest order.

    The bits depend only on the two rows, but differ from the bits of :func:`score_block`.

    Args:
        left: (num_left, dim) float32 or float64.
        right: (num_right, dim) of the same dtype.
        rows, columns: (num_entries,) integers, row numbers in both matrices.
    """
    out = place.empty((len(rows),), left.dtype)
    kernels_of(place).score_entries(left, right, (rows, columns), out, place)
    return out


def with_entries(matrix: CSR, entries: Tensor) -> CSR:
    """A matrix with other entries at the same places, for products.

    Args:
        entries: (nnz,) contiguous, in the order of the matrix; their memory is shared.
    """
    return replace(matrix, data=as_array(entries.detach()))


def score_pairs(left: Tensor, right: Tensor, place: Place) -> Tensor:
    """(num_rows,) scalar products of the rows of two matrices, with the bits of :func:`score_block`.

    Args:
        left: (num_rows, dim) float32 or float64.
        right: (num_rows, dim) of the same dtype.
    """
    out = place.empty((len(left),), left.dtype)
    kernels_of(place).score_pairs(left, right, out, place)
    return out


def normal_rows(key: np.uint64, rows: NDArray[np.int64], columns: slice, width: int, place: Place) -> Tensor:
    """Some columns of rows of standard normal numbers; see :func:`gnnloom.storage.matrix.random_numbers.normal_rows`.

    Returns:
        (num_rows, number of columns) float32, outside of the workspace.
    """
    return kernels_of(place).normal_rows(key, rows, columns, width, place)
