"""The sparse product against SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from numpy.typing import NDArray

from gnnloom.storage import CSR
from gnnloom.trainer.kernels.dispatch import Threads, sparse_product

NO_SCALE = torch.empty(0)


def _random_csr(rows: int, columns: int, density: float, index: type, weighted: bool, seed: int = 0) -> CSR:
    matrix = scipy.sparse.csr_array(scipy.sparse.random_array((rows, columns), density=density, rng=seed))
    data = matrix.data if weighted else None
    return CSR(0, matrix.indptr.astype(np.int64), matrix.indices.astype(index), data, columns)


def _dense(matrix: CSR) -> NDArray[Any]:
    data = np.ones(matrix.nnz) if matrix.data is None else matrix.data
    shape = (matrix.num_rows, matrix.num_columns)
    dense: NDArray[Any] = scipy.sparse.csr_array((data, matrix.indices, matrix.indptr), shape).toarray()
    return dense


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("rows", "columns", "density", "dim"), [(50, 70, 0.2, 17), (3, 4, 0.0, 5), (0, 9, 0.1, 3), (40, 40, 0.5, 1)]
)
def test_product_equals_scipy(
    dtype: type[np.floating[Any]], index: type, weighted: bool, rows: int, columns: int, density: float, dim: int
) -> None:
    matrix = _random_csr(rows, columns, density, index, weighted)
    rng = np.random.default_rng(1)
    dense: NDArray[Any] = rng.standard_normal((columns, dim)).astype(dtype)
    scale: NDArray[Any] = rng.uniform(0.5, 2, rows).astype(dtype)
    before: NDArray[Any] = rng.standard_normal((rows, dim)).astype(dtype)
    tolerance = 100 * float(np.finfo(dtype).eps)
    expected = scale[:, None] * (_dense(matrix) @ dense)
    for threads in (1, 3):
        product = sparse_product(matrix, Threads(threads), np.dtype(dtype))
        out = before.copy()
        given = torch.from_numpy(dense), torch.from_numpy(out), torch.from_numpy(scale)
        product.multiply(*given)
        np.testing.assert_allclose(out, expected, rtol=0, atol=tolerance)
        out[:] = before
        product.multiply(*given, accumulate=True)
        np.testing.assert_allclose(out, before + expected, rtol=0, atol=tolerance)


def test_the_number_of_threads_changes_no_bit() -> None:
    matrix = _random_csr(300, 300, 0.1, np.int32, weighted=False)
    dense = torch.randn(300, 33, generator=torch.Generator().manual_seed(2))
    results = []
    for threads in (1, 2, 5):
        out = torch.empty(300, 33)
        sparse_product(matrix, Threads(threads), np.dtype(np.float32)).multiply(dense, out, NO_SCALE)
        results.append(out)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_a_product_copies_neither_the_matrix_nor_the_dense_operands() -> None:
    import tracemalloc

    matrix = _random_csr(2000, 2000, 0.05, np.int32, weighted=False)
    dense, out = torch.ones(2000, 64), torch.zeros(2000, 64)
    sparse_product(matrix, Threads(), np.dtype(np.float32)).multiply(dense, out, NO_SCALE)  # compiles
    address = out.data_ptr()
    tracemalloc.start()
    try:
        product = sparse_product(matrix, Threads(), np.dtype(np.float32))
        product.multiply(dense, out, NO_SCALE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert out.data_ptr() == address
    assert peak < out.nbytes / 8
    assert peak < matrix.indices.nbytes / 8


def test_shapes_that_do_not_match_are_refused() -> None:
    product = sparse_product(_random_csr(4, 5, 0.5, np.int32, False), Threads(), np.dtype(np.float32))
    with pytest.raises(ValueError, match=r"\(4, 5\) times \(4, 2\) into \(4, 2\)"):
        product.multiply(torch.ones(4, 2), torch.ones(4, 2), NO_SCALE)
