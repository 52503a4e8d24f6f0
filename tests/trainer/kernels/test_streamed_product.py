"""The product of a matrix on disk has the bits of that of a matrix in memory."""

from __future__ import annotations

import tempfile
from pathlib import Path
from threading import Barrier, Event, current_thread, get_ident, main_thread

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnloom.storage import CSR
from gnnloom.storage.errors import CorruptError
from gnnloom.trainer.kernels.dispatch import SparseProduct, sparse_product
from gnnloom.trainer.kernels.streamed_product import StreamedProduct
from gnnloom.trainer.place.place import Place
from support.covering import examples
from support.sparse_products import Case, cases, random_csr
from support.stored_matrices import store_matrix


@settings(max_examples=examples(40), deadline=None)
@given(
    case=cases(),
    chunk_rows=st.sampled_from([3, 50, 5000]),
    block_entries=st.sampled_from([1, 40, 5000]),
)
def test_it_has_the_bits_of_the_product_in_memory(case: Case, chunk_rows: int, block_entries: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stored = store_matrix(Path(folder), case.matrix, chunk_rows=chunk_rows, block_entries=block_entries)
        products = [sparse_product(matrix, Place(case.dtype, 2)) for matrix in (case.matrix, stored)]
        if case.rows is not None:
            products = [product.restricted(case.rows) for product in products]
        assert products[0].nnz == products[1].nnz
        found = []
        # Twice: the second pass begins where the first one left the buffers.
        for product in (*products, products[1]):
            found.append(case.before())
            product.multiply(
                case.dense(), found[-1], case.row_scale(), accumulate=case.accumulate, column_scale=case.column_scale()
            )
    for streamed in found[1:]:
        assert torch.equal(streamed.view(torch.uint8), found[0].view(torch.uint8))


def test_the_product_works_after_a_failed_one(tmp_path: Path) -> None:
    matrix = random_csr(50, 50, 0.2, weighted=False)
    stored = store_matrix(tmp_path, matrix, chunk_rows=30, block_entries=40)
    product, dense, out = sparse_product(stored, Place()), torch.ones((50, 2)), torch.empty((50, 2))
    chunk = tmp_path / "indices/c/5"
    content = chunk.read_bytes()
    chunk.unlink()
    with pytest.raises(CorruptError, match="indices/c/5"):
        product.multiply(dense, out, torch.empty(0))
    chunk.write_bytes(content)
    product.multiply(dense, out, torch.empty(0))
    np.testing.assert_array_equal(out[:, 0], np.diff(matrix.indptr))


def test_messages_advance_between_blocks(tmp_path: Path) -> None:
    stored = store_matrix(tmp_path, random_csr(50, 50, 0.2, weighted=False), chunk_rows=30, block_entries=40)
    calls: list[int] = []
    multiplied: list[bool] = []

    def prepared(rows: CSR) -> SparseProduct:
        multiplied.append(current_thread() is main_thread())
        return sparse_product(rows, Place())

    product = StreamedProduct(stored, prepared, num_threads=2)
    product.multiply(torch.ones((50, 2)), torch.empty((50, 2)), torch.empty(0), progress=lambda: calls.append(1))
    assert len(multiplied) == len(stored.bounds) - 1 > 5
    # Those of the thread that sends the messages.
    assert len(calls) == sum(multiplied)


@pytest.mark.parametrize("num_threads", [1, 3])
def test_as_many_threads_multiply_as_are_asked_for(tmp_path: Path, num_threads: int) -> None:
    stored = store_matrix(tmp_path, random_csr(200, 50, 0.2, weighted=False), chunk_rows=30, block_entries=40)
    met, at_work, most = Event(), set[int](), 0
    # One more would be alone at the barrier.
    meeting = Barrier(num_threads, met.set, timeout=60)

    def prepared(rows: CSR) -> SparseProduct:
        nonlocal most
        at_work.add(get_ident())
        most = max(most, len(at_work))
        if not met.is_set():
            meeting.wait()
        at_work.discard(get_ident())
        return sparse_product(rows, Place())

    product = StreamedProduct(stored, prepared, num_threads=num_threads)
    product.multiply(torch.ones((50, 2)), torch.empty((200, 2)), torch.empty(0))
    assert most == num_threads


def test_wrong_shapes_and_rows_are_refused(tmp_path: Path) -> None:
    stored = store_matrix(tmp_path, random_csr(5, 4, 0.5, weighted=False), chunk_rows=30, block_entries=40)
    product = sparse_product(stored, Place())
    with pytest.raises(ValueError, match=r"\(5, 4\) times \(5, 2\) into \(5, 2\)"):
        product.multiply(torch.ones((5, 2)), torch.ones((5, 2)), torch.empty(0))
    with pytest.raises(ValueError, match="strictly ascending"):
        product.restricted(np.array([2, 1]))
