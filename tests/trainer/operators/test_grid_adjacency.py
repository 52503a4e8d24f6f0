"""What a rank multiplies with is cut exactly, kept once, and read in little more memory than it takes."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse
import torch

from gnnloom.pipeline.shards.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import CSR, Catalog, ReadCounter
from gnnloom.storage.artifacts.grid_shards import GridShards
from gnnloom.storage.format.artifact import Artifact
from gnnloom.trainer.comm.factors import factorizations, most_square
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.grid_rows import GridRows
from gnnloom.trainer.data.open_shards import SharedGridShards
from gnnloom.trainer.data.vertex_data import read_feature
from gnnloom.trainer.kernels.threads import Threads
from gnnloom.trainer.operators.grid import GridOperator
from gnnloom.trainer.operators.grid_adjacency import GridAdjacency, split_rows
from gnnloom.trainer.training.build import build_operator, model_options
from support.graphs import random_adjacency, store_graph, store_vertices
from support.problems import problem


def dense(block: CSR) -> np.ndarray:
    data = np.ones(block.nnz) if block.data is None else block.data
    return scipy.sparse.csr_array(
        (data, block.indices, block.indptr), shape=(block.num_rows, block.num_columns)
    ).toarray()


def test_blocks_of_rows_are_slices() -> None:
    matrix = random_adjacency(37, 200, 0, symmetric=False)
    given = CSR(0, matrix.indptr.astype(np.int64), matrix.indices, np.arange(matrix.nnz, dtype=np.float64), 37)
    whole = dense(given)
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


#: Planes whose edges are no edges of cells, and ranks of them.
PLANES = (
    ("broadcast", (5,), (0, 2, 4)),
    ("replicated", (4, 2), (1, 6)),
    ("summa", (4, 2), (1, 5)),
    ("split3d", (4, 2, 1), (2, 3)),
    ("tensor3d", (5, 2, 1), (4, 7)),
    ("tensor3d", (1, 2, 4), (1, 6)),
    ("tensor3d", (3, 2, 2), (6,)),
)


@dataclass(frozen=True)
class Rank:
    """A rank that is built and never speaks."""

    rank: int
    size: int


class Recorded(GridShards):
    """Remembers the windows that were asked for."""

    def windows(self, variant, rows, columns, counter=None, dtype=None):  # type: ignore[no-untyped-def]
        self.asked = getattr(self, "asked", [])
        self.asked.append((self.stored_variant(variant), rows, (columns[0][0], columns[-1][1])))
        return super().windows(variant, rows, columns, counter, dtype)


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Artifact:
    catalog = Catalog(tmp_path_factory.mktemp("large"))
    given = problem("large", 4000, 600_000, symmetric=True)
    return given.store_grid(catalog, "double", grid=(6, 6)).grid_shards().artifact


def _build(shards: GridShards, algorithm: str, grid: tuple[int, ...], rank: int, counter: ReadCounter) -> GridOperator:
    ranks = int(np.prod(grid))
    config = TrainConfig(
        catalog="c", dataset="large", ranks=ranks, algorithm=algorithm, grid=grid, hidden=(16, 16), threads=1
    )
    plan = model_options(config, 5, 3).layer_plan()
    return build_operator(Rank(rank, ranks), SharedGridShards(shards, counter), config, plan, Threads(), counter)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(("algorithm", "grid", "ranks"), PLANES)
def test_every_plane_is_read_with_little_beside_it(large, algorithm, grid, ranks) -> None:
    """Bytes read and memory taken stay within 1.2 times the rank's exact share, where ranks do not divide cells."""
    stored = {
        variant: sum(file.stat().st_size for file in (large.path / "grid" / variant).rglob("c/*"))
        for variant in ("even", "odd")
    }
    _build(GridShards(large), algorithm, grid, ranks[0], ReadCounter())  # compiles
    for rank in ranks:
        shards, counter = Recorded(large), ReadCounter()
        tracemalloc.start()
        try:
            operator = _build(shards, algorithm, grid, rank, counter)
            kept, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        spans = ((stored[variant], _width(rows), _width(columns)) for variant, rows, columns in shards.asked)
        exact = sum(size * height * width / 4000**2 for size, height, width in spans)
        assert 0.9 * exact < counter.bytes < 1.2 * exact
        assert operator.adjacency.num_vertices == 4000
        assert peak < 1.2 * kept + (1 << 18)  # chunks on their way, and the readers


def test_the_first_window_is_freed_once_its_product_is_kept(large) -> None:
    operator = _build(GridShards(large), "tensor3d", (2, 2, 1), 1, ReadCounter())
    tracemalloc.start()
    try:
        operator = _build(GridShards(large), "tensor3d", (2, 2, 1), 1, ReadCounter())
        before = tracemalloc.get_traced_memory()[0]
        operator.release(0)
        freed = before - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # Rows over z, columns over x: half of the entries, of which there are four bytes each, and nobody else's.
    assert freed > 0.9 * 4 * GridShards(large).artifact.facts["nnz"] / 2


def _width(span: tuple[int, int]) -> int:
    return span[1] - span[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_reading_features_takes_little_more_memory_than_they(tmp_path, dtype) -> None:
    dataset, rng = Catalog(tmp_path).create("wide"), np.random.default_rng(0)
    graph = store_graph(dataset, random_adjacency(6000, 6000, 0, symmetric=True), symmetric=True)
    store_vertices(dataset, rng.normal(size=(6000, 256)), None, None)
    shards = shard_grid(dataset, graph, GridOptions((3, 3)), InProcessCluster())
    read_feature(GridRows(shards, "rows", (0, 10), ReadCounter()), dtype)
    rows = GridRows(shards, "columns", (1500, 5100), ReadCounter())
    tracemalloc.start()
    try:
        feature = read_feature(rows, dtype)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert feature.nbytes < peak < 1.2 * feature.nbytes
    stored = 3600 * 256 * 4
    assert rows.counter.bytes < 1.2 * stored


def test_factorizations_are_all_there_and_the_even_one_is_chosen() -> None:
    assert factorizations(12, 2) == [(1, 12), (2, 6), (3, 4), (4, 3), (6, 2), (12, 1)]
    assert len(factorizations(12, 3)) == 18
    assert [most_square(number, 3) for number in (1, 7, 8, 12)] == [(1, 1, 1), (7, 1, 1), (2, 2, 2), (3, 2, 2)]
