"""The sparse product against SciPy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnloom.storage import CSR
from gnnloom.trainer.kernels.dispatch import ColumnScale, products_by_columns, sparse_product
from gnnloom.trainer.kernels.sparse_rows import PackedRows, listed_columns, listed_rows
from gnnloom.trainer.place.place import Place
from support.array_memory import tracing_arrays
from support.covering import examples, few_of
from support.sparse_products import Case, cases, random_csr

NO_SCALE = torch.empty(0)


@pytest.fixture(autouse=True, scope="module")
def threads_for_the_smallest_products() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gnnloom.trainer.kernels.c.calls._WORTH_A_THREAD", 1)
        yield


@settings(max_examples=examples(80), deadline=None)
@given(case=cases(), threads=st.integers(1, 3))
def test_product_equals_scipy(case: Case, threads: int) -> None:
    product = sparse_product(case.matrix, Place(case.dtype, threads))
    assert (product.num_rows, product.num_columns) == (case.matrix.num_rows, case.matrix.num_columns)
    chosen = product if case.rows is None else product.restricted(case.rows)
    dense, out = case.dense(), case.before()
    chosen.multiply(dense, out, case.row_scale(), accumulate=case.accumulate, column_scale=case.column_scale())
    # With weights, factors of columns are multiplied into the dense matrix beforehand, and so rounded to its dtype.
    scales_first = case.matrix.data is not None and case.scaled[1]
    dtype = case.dtype if scales_first else case.out_dtype
    eps = torch.finfo(dtype).eps
    # Sums of up to 60 products of size about 1, rounded at every step, or for bfloat16 at the end.
    steps = 2 if dtype == torch.bfloat16 else 64
    expected = case.expected()
    np.testing.assert_allclose(out.double().numpy(), expected, rtol=steps * eps, atol=64 * eps)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_float32_sum_over_a_hub_is_that_in_float64(dtype: torch.dtype, weighted: bool) -> None:
    count = 50_001
    rng = np.random.default_rng(4)
    data = (1.0009 + 1e-4 * rng.standard_normal(count)).astype(np.float32) if weighted else None
    matrix = CSR(0, np.array([0, count], np.int64), np.arange(count, dtype=np.int32), data, count)
    for dim in (1, 2, 3, 16, 40):
        dense = torch.from_numpy(1.0009 + 1e-4 * rng.standard_normal((count, dim))).to(dtype)
        out = torch.empty(1, dim, dtype=dtype)
        sparse_product(matrix, Place(dtype)).multiply(dense, out, NO_SCALE)
        factors = np.ones(count) if data is None else data.astype(np.float64)
        tolerance = 1e-6 if dtype == torch.float32 else 2**-8
        np.testing.assert_allclose(out.double()[0], factors @ dense.double().numpy(), rtol=tolerance)


def test_empty_matrices_are_multiplied() -> None:
    for rows, columns, dim in ((0, 9, 3), (3, 0, 5), (3, 4, 0)):
        out = torch.ones((rows, dim))
        matrix = CSR(0, np.zeros(rows + 1, np.int64), np.empty(0, np.int32), None, columns)
        sparse_product(matrix, Place(num_threads=2)).multiply(torch.ones((columns, dim)), out, NO_SCALE)
        assert not out.any()


def test_neither_repetition_nor_the_number_of_threads_changes_a_bit() -> None:
    matrix = random_csr(300, 300, 0.1, weighted=False)
    dense = torch.randn(300, 33, generator=torch.Generator().manual_seed(2))
    results = []
    for threads in (1, 1, 2, 3, 5):
        out = torch.empty(300, 33)
        sparse_product(matrix, Place(num_threads=threads)).multiply(dense, out, NO_SCALE)
        results.append(out)
    assert all(torch.equal(results[0], other) for other in results[1:])


def test_a_product_copies_neither_the_matrix_nor_the_dense_operands() -> None:
    matrix = random_csr(2000, 2000, 0.05, weighted=False)
    dense, out = torch.ones(2000, 64), torch.zeros(2000, 64)
    sparse_product(matrix, Place()).multiply(dense, out, NO_SCALE)
    address = out.data_ptr()
    with tracing_arrays() as arrays:
        product = sparse_product(matrix, Place())
        product.multiply(dense, out, NO_SCALE)
        peak = arrays.peak()
    assert out.data_ptr() == address
    assert peak < out.nbytes / 8
    assert peak < matrix.indices.nbytes / 8


def test_operands_that_do_not_match_are_refused() -> None:
    product = sparse_product(random_csr(4, 5, 0.5, weighted=False), Place())
    dense, out = torch.ones((5, 2)), torch.ones((4, 2))
    with pytest.raises(ValueError, match=r"\(4, 5\) times \(4, 2\) into \(4, 2\)"):
        product.multiply(out, out, NO_SCALE)
    with pytest.raises(ValueError, match=r"dense .*float64.* torch.float32"):
        product.multiply(dense.double(), out, NO_SCALE)
    with pytest.raises(ValueError, match=r"rows of out are not contiguous"):
        product.multiply(dense, torch.ones((2, 4)).T, NO_SCALE)
    with pytest.raises(ValueError, match=r"row factors are \(5,\) torch.float32, not \(4,\)"):
        product.multiply(dense, out, torch.ones(5))
    with pytest.raises(ValueError, match=r"column factors are \(5,\) torch.float64"):
        product.multiply(dense, out, NO_SCALE, column_scale=ColumnScale(torch.ones(5, dtype=torch.float64)))
    for rows in ([0, 0], [2, 1], [-1, 2], [3, 4]):
        with pytest.raises(ValueError, match="strictly ascending"):
            product.restricted(np.array(rows))


def test_few_rows_with_entries_are_listed_and_their_pointers_are_short() -> None:
    matrix = random_csr(1000, 10, 0.001, weighted=False)
    rows = listed_rows(matrix)
    assert rows.target is not None
    np.testing.assert_array_equal(rows.target, np.flatnonzero(np.diff(matrix.indptr)))
    assert len(rows.begin) == len(rows.end) == len(rows.target) < 20
    assert listed_rows(random_csr(1000, 10, 0.5, weighted=False)).target is None


@pytest.mark.parametrize("weighted", [False, True])
def test_products_by_columns_read_only_their_rows_and_copy_nothing(weighted: bool) -> None:
    matrix = random_csr(200, 40, 0.1, weighted=weighted)
    parts = [slice(0, 0), slice(0, 13), slice(13, 13), slice(13, 14), slice(14, 40), slice(40, 40)]
    dense = torch.randn(40, 5, generator=torch.Generator().manual_seed(3))
    data = np.ones(matrix.nnz) if matrix.data is None else matrix.data
    whole = scipy.sparse.csr_array((data, matrix.indices, matrix.indptr), (200, 40)).toarray()
    products = products_by_columns(matrix, parts, Place(num_threads=2))
    for part, product in zip(parts, products, strict=True):
        arrived, out = torch.full_like(dense, torch.nan), torch.ones(200, 5)
        arrived[part] = dense[part]
        product.multiply(arrived, out, NO_SCALE, accumulate=True)
        np.testing.assert_allclose(out, 1 + whole[:, part] @ dense[part].numpy(), rtol=1e-5, atol=1e-5)
    for listed in listed_columns(matrix, parts):
        assert np.shares_memory(listed.indices, matrix.indices) or not matrix.nnz
        assert len(listed.begin) <= min(200, listed.nnz)


@pytest.mark.parametrize(
    ("lists_entries", "weighted", "num_rows", "num_columns", "density"),
    few_of(
        [False, True],
        [False, True],
        [pytest.param(1000, 10, 0.001), pytest.param(40, 30, 0.3), pytest.param(7, 3, 0.0), pytest.param(0, 4, 0.0)],
        together=2,
    ),
)
def test_packed_rows_are_as_long_as_stated_and_lose_nothing(
    num_rows: int, num_columns: int, density: float, weighted: bool, lists_entries: bool
) -> None:
    matrix = random_csr(num_rows, num_columns, density, weighted=weighted)
    packed = PackedRows.of(listed_rows(matrix), Place(torch.float64), lists_entries=lists_entries)
    assert len(packed.rows) == (matrix.nnz if lists_entries else num_rows)
    assert [tensor.dtype for tensor in packed.tensors] == [torch.int32] * 2 + (
        [] if matrix.data is None else [torch.float64]
    )
    found = packed.unpacked()
    dense = torch.randn(num_columns, 5, generator=torch.Generator().manual_seed(3))
    expected, out = torch.ones(num_rows, 5), torch.zeros(num_rows, 5)
    for rows, result in ((matrix, expected), (found, out)):
        sparse_product(rows, Place()).multiply(dense, result, NO_SCALE)
    np.testing.assert_array_equal(out, expected)
    if lists_entries:
        # Work and memory for rows with entries only.
        assert found.target is not None
        np.testing.assert_array_equal(found.target, np.flatnonzero(np.diff(matrix.indptr)))
