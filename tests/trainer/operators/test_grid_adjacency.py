"""A rank cuts its windows of the adjacency exactly, keeps them once, and reads them in little extra memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from numpy.typing import NDArray

from gnnloom.pipeline.shards.grid.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import CSR, Catalog, ReadCounter
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.shards.grid_shards import GridShards
from gnnloom.trainer.algorithms.algorithm import OperatorContext
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.open_shards import GridRows, SharedGridShards
from gnnloom.trainer.data.vertex_data import read_feature
from gnnloom.trainer.operators.grid import GridOperator
from gnnloom.trainer.operators.grid_adjacency import GridAdjacency, split_rows
from gnnloom.trainer.place.place import Place
from support.array_memory import tracing_arrays
from support.graphs import random_adjacency, store_graph, store_vertices
from support.problems import problem


def dense(block: CSR) -> NDArray[Any]:
    data = np.ones(block.nnz) if block.data is None else block.data
    shape = (block.num_rows, block.num_columns)
    found: NDArray[Any] = scipy.sparse.csr_array((data, block.indices, block.indptr), shape=shape).toarray()
    return found


def test_blocks_of_rows_are_slices() -> None:
    matrix = random_adjacency(37, 200, 0, symmetric=False)
    given = CSR(0, matrix.indptr.astype(np.int64), matrix.indices, np.arange(matrix.nnz, dtype=np.float64), 37)
    whole = dense(given)
    for rows, block in split_rows(given, 5):
        np.testing.assert_array_equal(dense(block), whole[rows])


def test_the_same_window_is_read_and_kept_once(tmp_path: Path) -> None:
    given = problem("graph", 60, 240, symmetric=True)
    shards = given.store_grid(Catalog(tmp_path), "single").grid_shards()
    adjacency = GridAdjacency(shards, "symmetric", Place(torch.float64))
    blocks = [(0, 20), (20, 60)]
    forward = adjacency.blocks(0, (0, 20), blocks)
    assert adjacency.blocks(1, (0, 20), blocks) is forward
    assert adjacency.blocks(1, (0, 20), blocks, transposed=True) is forward
    products = adjacency.products(0, (0, 20), blocks)
    assert adjacency.products(1, (0, 20), blocks, transposed=True) is products
    assert adjacency.listed(0, (0, 20), blocks)[0].indices is forward[0].indices


#: Process grids whose windows cut through stored cells, and some of their ranks.
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
    """A rank of a communicator; operators are built on it and send nothing."""

    rank: int
    size: int


class Recorded(GridShards):
    """Records the windows that are read."""

    def windows(self, variant, rows, columns, counter=None, dtype=None):  # type: ignore[no-untyped-def]
        self.asked = getattr(self, "asked", [])
        self.asked.append((self.stored_variant(variant), rows, (columns[0][0], columns[-1][1])))
        return super().windows(variant, rows, columns, counter, dtype)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    catalog = Catalog(tmp_path_factory.mktemp("large"))
    given = problem("large", 4000, 600_000, symmetric=True)
    return given.store_grid(catalog, "double", grid=(6, 6)).grid_shards().artifact


def _build(shards: GridShards, algorithm: str, grid: tuple[int, ...], rank: int, counter: ReadCounter) -> GridOperator:
    ranks = int(np.prod(grid))
    config = TrainConfig.of(
        catalog="c", dataset="large", ranks=ranks, algorithm=algorithm, grid=grid, hidden=(16, 16), threads=1
    )
    plan = config.options_of_model(5, 3).layer_plan()
    chosen = config.algorithm.kind
    context = OperatorContext(
        comm=Rank(rank, ranks),  # type: ignore[arg-type]
        axes=chosen.settled_grid(grid, ranks),
        shards=SharedGridShards(shards, counter),
        normalization=config.model.normalization,
        place=Place(),
        plan=plan,
        differentiates=True,
        counter=counter,
        options=config.algorithm.own_options(),
    )
    return chosen.build(context)  # type: ignore[return-value]


@pytest.mark.parametrize(("algorithm", "grid", "ranks"), PLANES)
def test_a_rank_reads_little_more_than_its_window(
    large: Artifact, algorithm: str, grid: tuple[int, ...], ranks: tuple[int, ...]
) -> None:
    """Bytes read and memory used stay within 1.2 times the rank's exact fraction, even if it cuts through cells."""
    stored = {
        variant: sum(file.stat().st_size for file in (large.path / "grid" / variant).rglob("c/*"))
        for variant in ("even", "odd")
    }
    _build(GridShards(large), algorithm, grid, ranks[0], ReadCounter())  # compiles
    for rank in ranks:
        shards, counter = Recorded(large), ReadCounter()
        with tracing_arrays() as arrays:
            operator = _build(shards, algorithm, grid, rank, counter)
            kept, peak = arrays.now(), arrays.peak()
        spans = ((stored[variant], _width(rows), _width(columns)) for variant, rows, columns in shards.asked)
        exact = sum(size * height * width / 4000**2 for size, height, width in spans)
        assert 0.9 * exact < counter.bytes < 1.2 * exact
        assert operator.adjacency.num_vertices == 4000
        assert peak < 1.2 * kept + (1 << 18)  # chunks being read, and the readers


def test_releasing_the_first_layer_frees_its_window(large: Artifact) -> None:
    operator = _build(GridShards(large), "tensor3d", (2, 2, 1), 1, ReadCounter())
    with tracing_arrays() as arrays:
        operator = _build(GridShards(large), "tensor3d", (2, 2, 1), 1, ReadCounter())
        before = arrays.now()
        operator.release(0)
        freed = before - arrays.now()
    # Rows over z (one rank), columns over x (two): half of the entries, four bytes each; no other layer shares them.
    assert freed > 0.9 * 4 * GridShards(large).artifact.facts["nnz"] / 2


def _width(span: tuple[int, int]) -> int:
    return span[1] - span[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_reading_features_takes_little_more_memory_than_the_features(tmp_path: Path, dtype: torch.dtype) -> None:
    dataset, rng = Catalog(tmp_path).create("wide"), np.random.default_rng(0)
    graph = store_graph(dataset, random_adjacency(6000, 6000, 0, symmetric=True), symmetric=True)
    store_vertices(dataset, rng.normal(size=(6000, 256)), None, None)
    shards = shard_grid(dataset, graph, GridOptions((3, 3)), InProcessCluster())
    read_feature(GridRows(shards, "rows", (0, 10), ReadCounter()), Place(dtype))
    rows = GridRows(shards, "columns", (1500, 5100), ReadCounter())
    with tracing_arrays() as arrays:
        feature = read_feature(rows, Place(dtype))
        peak = arrays.peak()
    assert feature.nbytes < peak < 1.2 * feature.nbytes
    stored = 3600 * 256 * 4
    assert rows.counter.bytes < 1.2 * stored
