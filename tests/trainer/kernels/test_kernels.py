"""The sparse product and the dropout against NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from mpi4py import MPI

from gnnloom.storage import CSR
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.kernels.dropout import Dropout
from gnnloom.trainer.kernels.numba_spmm import SparseProduct
from gnnloom.trainer.kernels.threads import Threads
from gnnloom.trainer.layout.layout import Layout


def _random_csr(rows: int, columns: int, density: float, index: type, weighted: bool, seed: int = 0) -> CSR:
    matrix = scipy.sparse.random_array((rows, columns), density=density, rng=seed, format="csr")
    data = matrix.data if weighted else None
    return CSR(0, matrix.indptr.astype(np.int64), matrix.indices.astype(index), data, columns)


def _dense(matrix: CSR) -> np.ndarray:
    data = np.ones(matrix.nnz) if matrix.data is None else matrix.data
    return scipy.sparse.csr_array(
        (data, matrix.indices, matrix.indptr), (matrix.num_rows, matrix.num_columns)
    ).toarray()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("rows", "columns", "density", "dim"), [(50, 70, 0.2, 17), (3, 4, 0.0, 5), (0, 9, 0.1, 3), (40, 40, 0.5, 1)]
)
def test_product_equals_scipy(dtype, index, weighted, rows, columns, density, dim):
    matrix = _random_csr(rows, columns, density, index, weighted)
    rng = np.random.default_rng(1)
    dense = rng.standard_normal((columns, dim)).astype(dtype)
    scale = rng.uniform(0.5, 2, rows).astype(dtype)
    before = rng.standard_normal((rows, dim)).astype(dtype)
    expected = scale[:, None] * (_dense(matrix) @ dense)
    for threads in (1, 3):
        product = SparseProduct(matrix, Threads(threads), np.dtype(dtype))
        out = before.copy()
        product.multiply(dense, out, scale)
        np.testing.assert_allclose(out, expected, rtol=0, atol=100 * np.finfo(dtype).eps)
        out = before.copy()
        product.multiply(dense, out, scale, accumulate=True)
        np.testing.assert_allclose(out, before + expected, rtol=0, atol=100 * np.finfo(dtype).eps)


def test_threads_change_no_bit():
    matrix = _random_csr(300, 300, 0.1, np.int32, weighted=False)
    dense = np.random.default_rng(2).standard_normal((300, 33)).astype(np.float32)
    results = []
    for threads in (1, 2, 5):
        out = np.empty((300, 33), np.float32)
        SparseProduct(matrix, Threads(threads), np.dtype(np.float32)).multiply(dense, out, np.empty(0, np.float32))
        results.append(out)
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


def test_wrong_shapes_are_refused():
    product = SparseProduct(_random_csr(4, 5, 0.5, np.int32, False), Threads(), np.dtype(np.float64))
    with pytest.raises(ValueError, match=r"\(4, 5\) times"):
        product.multiply(np.ones((4, 2)), np.ones((4, 2)), np.empty(0))


def _layout(vertex: np.ndarray) -> Layout:
    return Layout(ProcessGrid(Communicator(MPI.COMM_SELF), {"row": 1}), vertex, ("row",))


def _drop(vertex: np.ndarray, probability: float = 0.3, seed: int = 1, epoch: int = 0, layer: int = 0, dim: int = 40):
    ones = torch.ones(len(vertex), dim, dtype=torch.float64, requires_grad=True)
    dropped = Dropout(probability, seed, Threads(2)).apply(ones, _layout(vertex), dim, epoch, layer)
    return ones, dropped


def test_dropout_drops_the_stated_share_and_keeps_the_mean():
    _, dropped = _drop(np.arange(5000))
    share = float((dropped == 0).double().mean())
    deviation = (0.3 * 0.7 / (5000 * 40)) ** 0.5
    assert abs(share - 0.3) < 5 * deviation
    assert set(dropped.detach().unique().tolist()) == {0.0, 1 / 0.7}


def test_dropout_depends_on_seed_epoch_layer_and_vertex_only():
    vertex = np.array([3, 17, 2**24 + 1, 2**31 + 5, 2**40])
    _, dropped = _drop(vertex)
    for number in range(len(vertex)):
        assert torch.equal(_drop(vertex[number : number + 1])[1][0], dropped[number])
    for other in ({"seed": 2}, {"epoch": 1}, {"layer": 1}):
        assert not torch.equal(_drop(vertex, **other)[1], dropped)
    assert len(dropped.detach().unique(dim=0)) == len(vertex), "two vertices share a mask"


def test_rows_and_columns_of_masks_are_uncorrelated():
    mask = (_drop(np.arange(2000), probability=0.5)[1] != 0).double().detach().numpy()
    for correlation in (np.corrcoef(mask.T), np.corrcoef(mask[:200])):
        np.fill_diagonal(correlation, 0)
        samples = 2000 if correlation.shape == (40, 40) else 40
        assert np.abs(correlation).max() < 6 / samples**0.5


def test_dropout_goes_backwards_through_the_same_mask():
    ones, dropped = _drop(np.arange(50))
    dropped.backward(torch.full_like(dropped, 2.0))
    assert torch.equal(ones.grad, 2 * dropped.detach())
