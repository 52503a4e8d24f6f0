"""Training with the adjacency on disk equals training with it in memory (on one rank to the bit), in less memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.sources.generators.sbm import StochasticBlockModel
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.stored_csr import BLOCK_ENTRIES
from gnnloom.storage.disk.files import tree_bytes
from gnnloom.storage.errors import InputError
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import launch
from gnnloom.trainer.place.threads import num_block_buffers
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.rehearsal.projection import project_training
from support.lone import LoneCommunicator
from support.mpi import train_all
from support.problems import problem
from support.scratch import small_chunks
from support.tolerance import assert_close

PROBLEMS = {
    "directed": problem("directed", 60, 240, symmetric=False),
    "undirected": problem("undirected", 61, 150, symmetric=True),
    "weighted": problem("weighted", 45, 200, symmetric=False, weighted=True),
    "fewer-vertices-than-ranks": problem("fewer-vertices-than-ranks", 3, 5, symmetric=False),
}
RANKS = (1, 2, 4)
EPOCHS = 2
#: Problems, ranks and models that are trained with the adjacency in memory and on disk, and few of them. GraphSAGE
#: normalizes one side only; once is enough.
CASES = [
    *((name, ranks, "gcn") for name in PROBLEMS for ranks in RANKS),
    *(("directed", ranks, "sage") for ranks in RANKS),
]
FEW = [
    ("directed", 1, "gcn"), ("directed", 4, "gcn"), ("undirected", 2, "gcn"), ("weighted", 1, "gcn"),
    ("fewer-vertices-than-ranks", 4, "gcn"), ("directed", 2, "sage"),
]  # fmt: skip


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("disk") / "catalog")
    for given in PROBLEMS.values():
        given.store(catalog, *RANKS)
    return catalog


def _config(catalog: Catalog, dataset: str, ranks: int, adjacency: str, **options: Any) -> TrainConfig:
    fixed: dict[str, Any] = {
        "run": f"{adjacency}-{ranks}-{options.get('model', 'gcn')}",
        "hidden": (7, 6),
        "epochs": EPOCHS,
        "eval_every": 0,
        "threads": 1,
        "dropout": 0.2,
    }
    return TrainConfig.of(
        catalog=str(catalog.root), dataset=dataset, ranks=ranks, adjacency=adjacency, **{**fixed, **options}
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "cases", [pytest.param(FEW, id="few"), pytest.param(CASES, id="every", marks=pytest.mark.long)]
)
def test_losses_have_the_bits_of_one_rank_and_those_of_several_up_to_rounding(
    catalog: Catalog, tmp_path: Path, cases: list[tuple[str, int, str]]
) -> None:
    configs = [
        _config(catalog, name, ranks, adjacency, model=model)
        for name, ranks, model in cases
        for adjacency in ("memory", "disk")
    ]
    results = train_all(tmp_path, configs)
    for case, memory, disk in zip(cases, results[::2], results[1::2], strict=True):
        # In memory, the rows of each neighbor are multiplied as they arrive; on disk, those of all at once.
        if case[1] == 1:
            assert disk["loss"] == memory["loss"], case
        assert_close(disk["loss"], memory["loss"], steps=EPOCHS, dtype=np.float32, message=str(case))
        assert (disk["bytes_sent"], disk["messages_sent"]) == (memory["bytes_sent"], memory["messages_sent"])


def test_the_bytes_of_an_epoch_are_those_of_its_products(catalog: Catalog) -> None:
    # Three layers of which the first product is kept: two products forward, and two backward with the same matrix.
    config = _config(catalog, "undirected", 1, "disk", run="bytes", epochs=4, dropout=0.0)
    result = train(LoneCommunicator(), config)
    shards = catalog["undirected"].row_shards(parts=1).artifact.path
    matrix = tree_bytes(shards / "row/00000/own/indices/c")
    lines = Run.open(catalog["undirected"], "bytes").metrics()
    assert [line["bytes_read"] for line in lines] == [4 * matrix] * 4
    # The shards were just written: the page cache holds some or all of them.
    assert all(line["bytes_from_device"] >= 0 for line in lines)
    assert result["bytes_read"][0] > 16 * matrix
    in_memory = _config(catalog, "undirected", 1, "memory", run="no-bytes")
    train(LoneCommunicator(), in_memory)
    assert all("bytes_read" not in line for line in Run.open(catalog["undirected"], "no-bytes").metrics())


def test_a_run_goes_on_with_the_adjacency_elsewhere(catalog: Catalog) -> None:
    whole = train(LoneCommunicator(), _config(catalog, "directed", 1, "memory", run="whole", epochs=4))
    train(LoneCommunicator(), _config(catalog, "directed", 1, "memory", run="moved", epochs=2))
    moved = train(LoneCommunicator(), _config(catalog, "directed", 1, "disk", run="moved", epochs=4))
    assert moved["loss"] == whole["loss"]


def test_what_needs_the_adjacency_in_memory_is_refused(catalog: Catalog) -> None:
    with pytest.raises(InputError, match=r"adjacency 'disk': algorithm summa .* p2p"):
        _config(catalog, "directed", 1, "disk", algorithm="summa")
    with pytest.raises(InputError, match="adjacency 'disk': model gat "):
        _config(catalog, "directed", 1, "disk", model="gat", hidden=(8,))


@pytest.fixture(scope="module")
def dense_graph(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A graph whose entries take most of the memory: tens of millions, of 60,000 vertices."""
    catalog, cluster = Catalog(tmp_path_factory.mktemp("dense") / "catalog"), InProcessCluster()
    model = StochasticBlockModel(num_vertices=60_000, num_edges=18_000_000, num_blocks=3, num_features=4, seed=2)
    dataset = catalog.create("dense")
    graph = ingest_graph(dataset, model.edges(), IngestOptions(undirected=True), cluster)
    ingest_vertices(dataset, model.vertices(), cluster)
    shard_rows(dataset, partition_graph(dataset, graph, PartitionOptions(1, "block"), cluster), cluster)
    return catalog


@pytest.mark.long
def test_memory_holds_some_blocks_only_as_planned(dense_graph: Catalog) -> None:
    nnz = dense_graph["dense"].row_shards().artifact.records["row/00000/own/indices"].shape[0]
    assert nnz > 4 * BLOCK_ENTRIES
    peaks, plans = {}, {}
    for adjacency in ("memory", "disk"):
        config = TrainConfig.of(
            catalog=str(dense_graph.root), dataset="dense", hidden=(4,), epochs=2, eval_every=0, threads=1,
            adjacency=adjacency, run=adjacency,
        )  # fmt: skip
        # Buffers of blocks are counted when the first product takes them, with what is not the adjacency itself.
        plans[adjacency] = project_training(config).peak_memory[0]
        peaks[adjacency] = launch(config)["peak_memory"][0]
    # Both have the memory of the process and of everything else.
    saved, planned = peaks["memory"] - peaks["disk"], plans["memory"] - plans["disk"]
    assert planned == pytest.approx(4 * nnz - num_block_buffers(1) * 4 * (BLOCK_ENTRIES + 2 * (1 << 20)), rel=0.01)
    assert saved > 0.8 * planned


def test_the_plan_of_an_adjacency_on_disk_does_not_grow_with_it(catalog: Catalog) -> None:
    def adjacency_memory(nnz: int, adjacency: str) -> int:
        name = f"plan-{nnz}"
        if name not in catalog:
            problem(name, 500, nnz, symmetric=True).store(catalog, 1)
        return project_training(_config(catalog, name, 1, adjacency)).adjacency_memory

    with pytest.MonkeyPatch.context() as patch:
        # Of a small matrix, the buffers have all chunks.
        patch.setattr("gnnloom.trainer.training.rehearsal.unread.BLOCK_ENTRIES", 500)
        small_chunks(patch, 400)
        few, many = (adjacency_memory(nnz, "disk") for nnz in (3000, 30_000))
    assert few == pytest.approx(many, rel=0.05)
    assert adjacency_memory(30_000, "memory") > adjacency_memory(3000, "memory") > 0
