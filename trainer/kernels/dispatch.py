"""The only entry point to the kernels: chooses the implementation of each.

All of them run on the CPU today, most of them in C. To attach another one, write a class with the methods of
:mod:`gnnloom.trainer.kernels.contract` and choose it here; no caller changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.csr import CSR
from gnnloom.trainer.kernels.c.calls import CSparseProduct
from gnnloom.trainer.kernels.c.library import best_library
from gnnloom.trainer.kernels.contract import (
    Attended,
    ColumnScale,
    EdgeSoftmax,
    Progress,
    RowSink,
    RowsOnDisk,
    SoftmaxGradient,
    SoftmaxState,
    SparseProduct,
)
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
from gnnloom.trainer.kernels.sparse_rows import (
    PackedRows,
    SparseRows,
    column_scale,
    listed_columns,
    listed_entries,
    listed_rows,
)
from gnnloom.trainer.kernels.streamed_product import StreamedProduct
from gnnloom.trainer.kernels.unperformed import (
    Unperformed,
    UnperformedProduct,
    UnperformedSoftmax,
    UnreadRows,
    Unwritten,
    even_offsets,
    performed,
    unperformed_by_columns,
    with_values,
)
from gnnloom.trainer.place.arrays import array_dtype
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.place.threads import Threads

__all__ = [
    "Attended",
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
    "performed",
    "products_by_columns",
    "rectify",
    "scaled_rows",
    "scaled_sum",
    "score_block",
    "score_entries",
    "score_pairs",
    "seconds_of_weight_gradients",
    "sparse_product",
    "sparse_product_kernel",
    "weight_gradient",
    "with_values",
]


def sparse_product(
    matrix: CSR | SparseRows | RowsOnDisk, place: Place, dtype: torch.dtype | None = None
) -> SparseProduct:
    """Prepare a matrix for products with dense ones; shares its memory, or reads it from disk each time.

    Weights are converted once to the dtype of sums.

    Args:
        dtype: of the dense matrices; None for that of features.
    """
    if place.rehearses:
        rows = listed_rows(matrix) if isinstance(matrix, CSR) else matrix
        return UnperformedProduct(rows, num_threads=place.threads.num_threads)
    if isinstance(matrix, CSR | SparseRows):
        return _product(place.threads, matrix, dtype or place.feature_dtype)
    # A thread multiplies a block by itself: several would wait for each other at the end of every block.
    prepare = partial(_product, Threads())
    return StreamedProduct(matrix, place.feature_dtype, prepare, num_threads=place.threads.num_threads)


def products_by_columns(matrix: CSR, parts: Sequence[slice], place: Place) -> list[SparseProduct]:
    """For every range of columns, the product of a matrix's entries there; they share its memory.

    Each takes the whole dense matrix and reads the rows of its range, so that others may still be on their way.

    Args:
        parts: one range after the other, from the first column to the last.
    """
    if place.rehearses:
        return list[SparseProduct](unperformed_by_columns(matrix, len(parts)))
    if matrix.data is not None:
        # Here, so that the products share what they would convert.
        matrix = replace(matrix, data=matrix.data.astype(array_dtype(place.sum_dtype), copy=False))
    return [_product(place.threads, rows, place.feature_dtype) for rows in listed_columns(matrix, parts)]


def _product(threads: Threads, matrix: CSR | SparseRows, dtype: torch.dtype) -> SparseProduct:
    rows = listed_rows(matrix) if isinstance(matrix, CSR) else matrix
    return CSparseProduct(best_library(), rows, threads, dtype)


def sparse_product_kernel() -> str:
    """Name of the kernel of sparse products, as ``gnnloom doctor`` reports it."""
    return f"C with {best_library().instruction_set}"


def edge_softmax(pattern: CSR, negative_slope: float, place: Place, *, dynamic: bool = False) -> EdgeSoftmax:
    """Prepare a pattern for attention of its rows over its columns; weights are ignored.

    Args:
        negative_slope: slope of the LeakyReLU below 0.
        dynamic: with the scores of GATv2.
    """
    if place.rehearses:
        return UnperformedSoftmax(pattern, place, dynamic=dynamic)
    # It transposes the pattern with numba, whose import takes 0.4 s and 60 MB.
    from gnnloom.trainer.kernels.c.edge_softmax import CEdgeSoftmax  # noqa: PLC0415

    return CEdgeSoftmax(best_library(), pattern, negative_slope, place, dynamic=dynamic)


def score_block(left: Tensor, right: Tensor, place: Place) -> Tensor:
    """Scalar products of all rows with all rows; see :func:`gnnloom.trainer.kernels.pair_scores.score_block`."""
    if place.rehearses:
        return place.empty((len(left), len(right)), left.dtype)
    # Imported here to save time and memory; see :func:`edge_softmax`.
    from gnnloom.trainer.kernels import pair_scores  # noqa: PLC0415

    return pair_scores.score_block(left, right, place)


def score_entries(left: Tensor, right: Tensor, rows: NDArray[Any], columns: NDArray[Any], place: Place) -> Tensor:
    """Scalar products of some rows with some rows; see :func:`gnnloom.trainer.kernels.pair_scores.score_entries`."""
    if place.rehearses:
        return place.empty((len(rows),), left.dtype)
    from gnnloom.trainer.kernels import pair_scores  # noqa: PLC0415 - likewise

    return pair_scores.score_entries(left, right, rows, columns, place)


def score_pairs(left: Tensor, right: Tensor, place: Place) -> Tensor:
    """Scalar products of rows with rows; see :func:`gnnloom.trainer.kernels.pair_scores.score_pairs`."""
    if place.rehearses:
        return place.empty((len(left),), left.dtype)
    from gnnloom.trainer.kernels import pair_scores  # noqa: PLC0415 - likewise

    return pair_scores.score_pairs(left, right, place)
