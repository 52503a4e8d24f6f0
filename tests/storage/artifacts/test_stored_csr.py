"""A matrix on disk is read in blocks of whole rows, and every chunk once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gnnloom.storage import CSR
from gnnloom.storage.artifacts.stored_csr import row_sums
from gnnloom.storage.disk.files import tree_bytes
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.arrays import ReadCounter
from support.covering import few_of
from support.sparse_products import random_csr
from support.stored_matrices import store_matrix


def _uneven(weighted: bool) -> CSR:
    """Empty rows at both ends and in between, and a row that is longer than a block."""
    matrix = random_csr(60, 200, 0.03, weighted=weighted)
    lengths = np.diff(matrix.indptr)
    lengths[[0, 30, 31, 59]], lengths[40] = 0, 150
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    rng = np.random.default_rng(1)
    indices = np.concatenate([np.sort(rng.permutation(200)[:length]) for length in lengths]).astype(np.int32)
    return CSR(0, indptr, indices, rng.random(len(indices)) if weighted else None, 200)


@pytest.mark.parametrize(
    ("weighted", "chunk_rows", "block_entries"),
    few_of(
        [False, True],
        [pytest.param(7, 20), pytest.param(64, 20), pytest.param(10_000, 50), pytest.param(5, 10_000)],
        together=1,
    ),
)
def test_blocks_are_the_matrix(tmp_path: Path, weighted: bool, chunk_rows: int, block_entries: int) -> None:
    matrix = _uneven(weighted)
    stored = store_matrix(tmp_path, matrix, chunk_rows=chunk_rows, block_entries=block_entries)
    row, longest = 0, 0
    for block in stored.blocks():
        assert block.span.start == row
        row, rows = block.span.stop, slice(*matrix.indptr[[block.span.start, block.span.stop]])
        np.testing.assert_array_equal(block.rows.indices, matrix.indices[rows])
        np.testing.assert_array_equal(block.rows.indptr, matrix.indptr[block.span.start : row + 1] - rows.start)
        if weighted and block.rows.data is not None and matrix.data is not None:
            np.testing.assert_array_equal(block.rows.data, matrix.data[rows])
        assert (block.rows.data is None) != weighted
        longest = max(longest, block.rows.nnz if block.rows.num_rows > 1 else 0)
    assert row == matrix.num_rows
    assert longest <= block_entries
    expected = np.add.reduceat(
        np.append(matrix.data if matrix.data is not None else np.ones(matrix.nnz), 0), matrix.indptr[:-1]
    )
    np.testing.assert_allclose(row_sums(stored), np.where(np.diff(matrix.indptr) > 0, expected, 0))
    np.testing.assert_array_equal(row_sums(matrix), row_sums(stored))


def test_a_pass_reads_every_chunk_once(tmp_path: Path) -> None:
    counter = ReadCounter()
    matrix = _uneven(weighted=True)
    stored = store_matrix(tmp_path, matrix, chunk_rows=16, block_entries=20, counter=counter)
    for _ in stored.blocks():
        pass
    assert counter.files == -(-matrix.nnz // 16) + -(-matrix.nnz // 17)
    assert counter.bytes == sum(tree_bytes(tmp_path / name / "c") for name in ("indices", "data"))


def test_blocks_in_any_order(tmp_path: Path) -> None:
    matrix = _uneven(weighted=False)
    stored = store_matrix(tmp_path, matrix, chunk_rows=7, block_entries=20)
    sweep, last = stored.sweep(), len(stored.bounds) - 2
    for number in (0, 3, 1, last, last, 2, 3):
        block = sweep.read(number)
        rows = slice(*matrix.indptr[[block.span.start, block.span.stop]])
        np.testing.assert_array_equal(block.rows.indices, matrix.indices[rows])


def test_a_block_stays_until_another_one_is_read_into_its_buffer(tmp_path: Path) -> None:
    matrix = _uneven(weighted=False)
    stored = store_matrix(tmp_path, matrix, chunk_rows=7, block_entries=20)
    sweep = stored.sweep(3)
    first = sweep.read(1, 2)
    before = first.rows.indices.copy()
    for number, buffer in ((2, 0), (3, 1), (4, 0), (5, 0)):
        block = sweep.read(number, buffer)
        rows = slice(*matrix.indptr[[block.span.start, block.span.stop]])
        np.testing.assert_array_equal(block.rows.indices, matrix.indices[rows])
    np.testing.assert_array_equal(first.rows.indices, before)


def test_a_damaged_chunk_is_named(tmp_path: Path) -> None:
    stored = store_matrix(tmp_path, _uneven(weighted=False), chunk_rows=64, block_entries=20)
    chunk = tmp_path / "indices/c/1"
    damaged = bytearray(chunk.read_bytes())
    damaged[20] ^= 1
    chunk.write_bytes(damaged)
    with pytest.raises(CorruptError, match="indices/c/1: damaged chunk"):
        list(stored.blocks())
    chunk.unlink()
    with pytest.raises(CorruptError, match="indices/c/1: "):
        list(stored.blocks())
