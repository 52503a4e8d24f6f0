"""What a rank multiplies with is cut exactly, kept once, and read in little more memory than it takes."""

from __future__ import annotations

import tracemalloc

import numpy as np
import scipy.sparse

from gnnloom.storage import CSR, Catalog
from gnnloom.storage.grid_shards import split_range
from gnnloom.trainer.kernels.threads import Threads
from gnnloom.trainer.operators.adjacency import GridAdjacency, split_columns, split_rows
from gnnloom.trainer.process_grid import factorisations, most_square
from support.graphs import random_adjacency
from support.problems import problem


def dense(block: CSR) -> np.ndarray:
    data = np.ones(block.nnz) if block.data is None else block.data
    return scipy.sparse.csr_array(
        (data, block.indices, block.indptr), shape=(block.num_rows, block.num_columns)
    ).toarray()


def test_blocks_of_columns_and_rows_are_slices() -> None:
    matrix = random_adjacency(37, 200, 0, symmetric=False)
    given = CSR(0, matrix.indptr.astype(np.int64), matrix.indices, np.arange(matrix.nnz, dtype=np.float64), 37)
    whole = dense(given)
    spans = [(0, 5), (5, 5), (5, 30), (30, 37)]
    for (start, stop), block in zip(spans, split_columns(given, spans), strict=True):
        np.testing.assert_array_equal(dense(block), whole[:, start:stop])
    for rows, block in split_rows(given, 5):
        np.testing.assert_array_equal(dense(block), whole[rows])


def test_the_same_window_is_read_and_kept_once(tmp_path) -> None:
    given = problem("graph", 60, 240, symmetric=True)
    shards = given.store_grid(Catalog(tmp_path), "single").grid_shards()
    adjacency = GridAdjacency(shards, "symmetric", np.dtype("float64"), Threads())
    blocks = [(0, 20), (20, 60)]
    forward = adjacency.blocks(0, (0, 20), blocks)
    assert adjacency.blocks(1, (0, 20), blocks) is forward
    assert adjacency.blocks(1, (0, 20), blocks, transposed=True) is forward


def test_reading_a_plane_takes_little_more_memory_than_the_plane(tmp_path) -> None:
    given = problem("large", 8000, 1_000_000, symmetric=True)
    shards = given.store_grid(Catalog(tmp_path), "double", grid=(8, 8)).grid_shards()
    rows, columns = split_range(8000, 2, 1), split_range(8000, 2, 0)
    shards.window("even", rows, (0, 1))  # compiles
    tracemalloc.start()
    try:
        (plane,) = GridAdjacency(shards, "none", np.dtype("float32"), Threads()).blocks(0, rows, [columns])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    exact = plane.indptr.nbytes + plane.indices.nbytes
    assert exact < peak < 1.2 * exact + (1 << 19)  # chunks on their way, and the readers


def test_factorisations_are_all_there_and_the_even_one_is_chosen() -> None:
    assert factorisations(12, 2) == [(1, 12), (2, 6), (3, 4), (4, 3), (6, 2), (12, 1)]
    assert len(factorisations(12, 3)) == 18
    assert [most_square(number, 3) for number in (1, 7, 8, 12)] == [(1, 1, 1), (7, 1, 1), (2, 2, 2), (3, 2, 2)]
