"""The only entry point to the kernels: chooses the implementation of each.

All of them run on the CPU today, compiled by numba. To attach another one, write a class with the methods of
:mod:`gnnloom.trainer.kernels.contract` and choose it here; no caller changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnloom.storage.matrix.csr import CSR
from gnnloom.trainer.kernels.attention import NumbaEdgeSoftmax
from gnnloom.trainer.kernels.contract import EdgeSoftmax, SoftmaxGradient, SoftmaxState, SparseProduct
from gnnloom.trainer.kernels.dropout import Dropout
from gnnloom.trainer.kernels.elementwise import add_bias, add_to, scaled_sum
from gnnloom.trainer.kernels.gemm import matmul, seconds_of_weight_gradients, weight_gradient
from gnnloom.trainer.kernels.numba_spmm import NumbaSparseProduct
from gnnloom.trainer.kernels.rectify import rectify
from gnnloom.trainer.kernels.threads import Threads
from gnnloom.trainer.kernels.workspace import Workspace

__all__ = [
    "Dropout",
    "EdgeSoftmax",
    "SoftmaxGradient",
    "SoftmaxState",
    "SparseProduct",
    "Threads",
    "Workspace",
    "add_bias",
    "add_to",
    "edge_softmax",
    "matmul",
    "rectify",
    "scaled_sum",
    "seconds_of_weight_gradients",
    "sparse_product",
    "weight_gradient",
]


def sparse_product(matrix: CSR, threads: Threads, dtype: np.dtype[Any]) -> SparseProduct:
    """Prepare a matrix for products with dense matrices; shares its memory.

    Args:
        dtype: float32 or float64, of the dense matrices; weights of another dtype are converted once.
    """
    return NumbaSparseProduct(matrix, threads, dtype)


def edge_softmax(pattern: CSR, negative_slope: float, threads: Threads) -> EdgeSoftmax:
    """Prepare a pattern for attention of its rows over its columns; weights are ignored.

    Args:
        negative_slope: slope of the LeakyReLU below 0.
    """
    return NumbaEdgeSoftmax(pattern, negative_slope, threads)
