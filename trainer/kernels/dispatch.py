"""The only entry point to the kernels: chooses the implementation of each.

All of them run on the CPU today, compiled by numba, or in C where a compiler was there when gnnloom was installed. To
attach another one, write a class with the methods of :mod:`gnnloom.trainer.kernels.contract` and choose it here; no
caller changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from gnnloom.storage.matrix.csr import CSR
from gnnloom.trainer.kernels.arrays import array_dtype, sum_dtype, tensor_dtype
from gnnloom.trainer.kernels.c.library import chosen_library
from gnnloom.trainer.kernels.c.sparse_product import CSparseProduct
from gnnloom.trainer.kernels.contract import EdgeSoftmax, RowsOnDisk, SoftmaxGradient, SoftmaxState, SparseProduct
from gnnloom.trainer.kernels.dropout import Dropout
from gnnloom.trainer.kernels.elementwise import (
    add_bias,
    add_to,
    add_widened,
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
from gnnloom.trainer.kernels.rectify import rectify
from gnnloom.trainer.kernels.sparse_rows import PackedRows, SparseRows, listed_columns, listed_rows
from gnnloom.trainer.kernels.streamed_product import StreamedProduct
from gnnloom.trainer.kernels.threads import IdleThreads, Threads
from gnnloom.trainer.kernels.unperformed import Unperformed, UnperformedProduct, UnperformedSoftmax
from gnnloom.trainer.kernels.workspace import Workspace

__all__ = [
    "Dropout",
    "EdgeSoftmax",
    "IdleThreads",
    "PackedRows",
    "SoftmaxGradient",
    "SoftmaxState",
    "SparseProduct",
    "SparseRows",
    "Threads",
    "Unperformed",
    "Workspace",
    "add_bias",
    "add_to",
    "add_widened",
    "column_sums",
    "converted",
    "edge_softmax",
    "elu",
    "fork",
    "give_up",
    "head_mean",
    "head_scores",
    "head_sums",
    "listed_rows",
    "matmul",
    "matrix_sum",
    "products_by_columns",
    "rectify",
    "scaled_rows",
    "scaled_sum",
    "seconds_of_weight_gradients",
    "sparse_product",
    "sparse_product_kernel",
    "sum_dtype",
    "weight_gradient",
]


def sparse_product(
    matrix: CSR | SparseRows | RowsOnDisk, threads: Threads, dtype: np.dtype[Any] | torch.dtype
) -> SparseProduct:
    """Prepare a matrix for products with dense matrices; shares its memory, or reads it from disk for every product.

    The kernel in C, if it was built and ``$GNNLOOM_KERNELS`` is not ``numba``; else the one compiled by numba.

    Args:
        dtype: float32, float64 or torch's bfloat16, of the dense matrices; weights of another dtype are converted
            once, to float32 for bfloat16.
    """
    kind = _as_torch(dtype)
    if isinstance(threads, IdleThreads):
        return UnperformedProduct(matrix.num_rows, matrix.num_columns, matrix.nnz)
    if isinstance(matrix, CSR):
        matrix = listed_rows(matrix)
    if isinstance(matrix, SparseRows):
        return _product(matrix, threads, kind)
    return StreamedProduct(matrix, kind, partial(_prepared, threads), fuses=chosen_library() is not None)


def products_by_columns(
    matrix: CSR, parts: Sequence[slice], threads: Threads, dtype: np.dtype[Any] | torch.dtype
) -> list[SparseProduct]:
    """For every range of columns, the product of a matrix's entries there; they share its memory.

    Each takes the whole dense matrix and reads the rows of its range, so that others may still be on their way.

    Args:
        parts: one range after the other, from the first column to the last.
        dtype: see :func:`sparse_product`.
    """
    kind = _as_torch(dtype)
    if isinstance(threads, IdleThreads):
        return [UnperformedProduct(matrix.num_rows, matrix.num_columns, matrix.nnz)] * len(parts)
    if matrix.data is not None:
        # Here, so that the products share what they would convert.
        matrix = replace(matrix, data=matrix.data.astype(array_dtype(sum_dtype(kind)), copy=False))
    return [_product(rows, threads, kind) for rows in listed_columns(matrix, parts)]


def _as_torch(dtype: np.dtype[Any] | torch.dtype) -> torch.dtype:
    return dtype if isinstance(dtype, torch.dtype) else tensor_dtype(dtype)


def _product(rows: SparseRows, threads: Threads, dtype: torch.dtype) -> SparseProduct:
    library = chosen_library()
    if library is not None:
        return CSparseProduct(library, rows, threads, dtype)
    # Imported here to save time and memory; see :func:`edge_softmax`.
    from gnnloom.trainer.kernels.numba_spmm import NumbaSparseProduct  # noqa: PLC0415

    return NumbaSparseProduct(rows, threads, dtype)


def _prepared(threads: Threads, matrix: CSR, dtype: torch.dtype) -> SparseProduct:
    return sparse_product(matrix, threads, dtype)


def sparse_product_kernel() -> str:
    """Name of the kernel of sparse products, as ``gnnloom doctor`` reports it."""
    library = chosen_library()
    return "numba" if library is None else f"C with {library.instruction_set}"


def has_c_kernels() -> bool:
    """Whether the kernels in C are used, rather than those compiled by numba."""
    return chosen_library() is not None


def edge_softmax(pattern: CSR, negative_slope: float, threads: Threads) -> EdgeSoftmax:
    """Prepare a pattern for attention of its rows over its columns; weights are ignored.

    Args:
        negative_slope: slope of the LeakyReLU below 0.
    """
    if isinstance(threads, IdleThreads):
        return UnperformedSoftmax()
    # Importing numba takes 0.4 s and 60 MB; only attention, or a missing C library, needs it.
    from gnnloom.trainer.kernels.attention import NumbaEdgeSoftmax  # noqa: PLC0415

    return NumbaEdgeSoftmax(pattern, negative_slope, threads)
