"""The partition stage: options, artifacts, resuming, and figures on real graphs."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gnnloom.pipeline.partition.measure import volume
from gnnloom.pipeline.partition.stage import METHODS, PartitionOptions, partition_graph
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError, PartitionerError
from support.graphs import random_adjacency, store_graph
from support.partitions import rows_sent
from support.stopping import StoppingCluster

HERE = InProcessCluster()


#: A directed graph has the figures of an undirected one as well, and more, so one method is enough for the latter.
FIGURES = [(method, False) for method in METHODS] + [("mtkahypar", True)]
LONG_FIGURES = [(method, True) for method in METHODS if method != "mtkahypar"]


@pytest.mark.parametrize(
    ("method", "symmetric"), [*FIGURES, *(pytest.param(*case, marks=pytest.mark.long) for case in LONG_FIGURES)]
)
def test_the_figures_of_every_method_equal_a_count_by_hand(catalog: Catalog, method: str, symmetric: bool) -> None:
    adjacency = random_adjacency(120, 400, 1, symmetric=symmetric)
    dataset = catalog.create("g")
    graph = store_graph(dataset, adjacency, symmetric=symmetric)
    partition = partition_graph(dataset, graph, PartitionOptions(5, method=method, imbalance=0.1), HERE)
    part = partition.part()
    assert part.dtype == np.int32
    assert (part.shape, set(part.tolist())) == ((120,), set(range(5)))
    forward = rows_sent(adjacency.toarray(), part, 5)
    backward = rows_sent(adjacency.T.toarray(), part, 5)
    assert partition.quality["km1"] == forward.sum()
    assert partition.quality["volume_matrix"] == forward.tolist()
    assert partition.quality["method"] == method
    assert ("volume_backward_total" in partition.quality) is not symmetric
    if not symmetric:
        assert partition.quality["volume_backward_total"] == backward.sum()
        assert partition.quality["messages_backward_max"] == (backward > 0).sum(axis=1).max()
    sizes = np.bincount(part)
    assert (partition.quality["vertices_min"], partition.quality["vertices_max"]) == (sizes.min(), sizes.max())


@pytest.mark.parametrize("method", tuple(METHODS))
@pytest.mark.parametrize("parts", [1, 6])
def test_every_method_can_make_one_part_and_a_part_for_each_vertex(catalog: Catalog, method: str, parts: int) -> None:
    dataset = catalog.create("g")
    graph = store_graph(dataset, random_adjacency(6, 9, 0, symmetric=True), symmetric=True)
    partition = partition_graph(dataset, graph, PartitionOptions(parts, method=method), HERE)
    assert set(partition.part().tolist()) == set(range(parts))


@pytest.mark.parametrize("weights", ["nonzeros", "unit"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_a_single_part_has_the_figures_of_the_graph_and_no_task_measures_it(
    catalog: Catalog, symmetric: bool, weights: str
) -> None:
    adjacency = random_adjacency(50, 300, 1, symmetric=symmetric)
    dataset, cluster = catalog.create("g"), StoppingCluster()
    graph = store_graph(dataset, adjacency, symmetric=symmetric)
    quality = partition_graph(dataset, graph, PartitionOptions(1, "block", weights=weights), cluster).quality
    assert {function for function, _ in cluster.ran} == {"_store_rows"}
    nnz, exchange = int(adjacency.nnz), dict[str, Any]()
    for direction in ("", *(() if symmetric else ("backward_",))):
        volume = {f"{name}_{direction}max": 0 for name in ("volume", "receive_volume", "messages")}
        volume |= {f"{name}_{direction}{sort}": 0 for name in ("volume", "messages") for sort in ("total", "avg")}
        lists = ("volume", "receive_volume", "messages", "receive_messages")
        exchange |= volume | {f"{name}_{direction}per_part": [0] for name in lists}
        exchange[f"volume_{direction}matrix"] = [[0]]
    loads = {"load_max": nnz, "load_avg": nnz, "load_per_part": [nnz], "imbalance": 0, "imbalance_bound": 0}
    sizes = {"parts": 1, "vertices_min": 50, "vertices_max": 50, "vertices_per_part": [50]}
    by_unit = {"weight_imbalance": 0} if weights == "unit" else {}
    assert quality == {"method": "block", "km1": 0, **sizes, **loads, **by_unit, **exchange}


@pytest.mark.parametrize("method", tuple(METHODS))
def test_more_parts_than_vertices_are_refused(catalog: Catalog, method: str) -> None:
    dataset = catalog.create("g")
    graph = store_graph(dataset, random_adjacency(6, 9, 0, symmetric=True), symmetric=True)
    with pytest.raises(InputError, match="parts=7: "):
        partition_graph(dataset, graph, PartitionOptions(7, method=method), HERE)
    assert dataset.artifacts("partition") == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"parts": 0}, "parts 0: expected at least 1"),
        ({"parts": 2, "method": "patoh"}, "method 'patoh': expected one of"),
        ({"parts": 2, "model": "tree"}, "model 'tree': expected one of"),
        ({"parts": 2, "method": "metis", "model": "hypergraph"}, "model 'hypergraph': method metis offers graph"),
        ({"parts": 2, "preset": "direct"}, "preset 'direct': method mtkahypar offers deterministic, "),
        ({"parts": 2, "method": "random", "preset": "flat"}, "preset 'flat': method random has none"),
        ({"parts": 2, "weights": "heavy"}, "weights 'heavy': expected one of nonzeros, unit"),
        ({"parts": 2, "directions": "up"}, "directions 'up': expected one of forward, both"),
        ({"parts": 2, "method": "metis", "directions": "both"}, "directions both: method metis with model graph"),
        ({"parts": 2, "method": "random", "directions": "both"}, "directions both: method random"),
        ({"parts": 2, "batches": "walk"}, "model hypergraph ignores batches"),
        ({"parts": 2, "batch_rate": 0.5}, "model hypergraph ignores batches"),
        ({"parts": 2, "batches": "star"}, "batches 'star': expected one of vertex, edge, walk, frontier"),
        ({"parts": 2, "batch_rate": 0}, "batch_rate 0: expected more than 0"),
        ({"parts": 2, "memory_limit": 0}, "memory_limit 0: expected more than 0"),
        ({"parts": 2, "imbalance": -0.1}, "imbalance -0.1: expected a number from 0 upwards"),
        ({"parts": 2, "imbalance": float("nan")}, "imbalance nan: expected a number from 0 upwards"),
        ({"parts": 2, "seed": -1}, "seed -1: expected at least 0"),
        ({"parts": 2, "seed": 1 << 31}, "seed 2147483648: expected at most 2147483647"),
        ({"parts": 2, "time_limit": 0}, "time_limit 0: expected more than 0"),
        ({"parts": 2, "threads": 0}, "threads 0: expected at least 1"),
    ],
)
def test_invalid_options_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        PartitionOptions(**wrong)


def test_a_partitioner_that_runs_out_of_time_leaves_an_incomplete_artifact(catalog: Catalog) -> None:
    dataset = catalog.create("g")
    graph = store_graph(dataset, random_adjacency(200, 2000, 0, symmetric=True), symmetric=True)
    with pytest.raises(PartitionerError, match=r"kaminpar:"):
        partition_graph(dataset, graph, PartitionOptions(4, time_limit=0.001), HERE)
    assert [info.state for info in dataset.artifacts("partition")] == ["incomplete"]
    partition = partition_graph(dataset, graph, PartitionOptions(4, time_limit=100), HERE)
    assert partition.quality["parts"] == 4


def test_the_key_depends_on_the_seed_and_not_on_limits_and_threads(catalog: Catalog) -> None:
    dataset = catalog.create("g")
    graph = store_graph(dataset, random_adjacency(100, 500, 0, symmetric=True), symmetric=True)
    first = partition_graph(dataset, graph, PartitionOptions(4, threads=1), HERE)
    again = partition_graph(dataset, graph, PartitionOptions(4, threads=2, time_limit=60), HERE)
    other = partition_graph(dataset, graph, PartitionOptions(4, seed=1), HERE)
    assert first.artifact.key == again.artifact.key != other.artifact.key


def test_the_key_has_every_option_that_changes_parts() -> None:
    basic = {"parts": 4, "method": "mtkahypar", "imbalance": 0.01, "seed": 0, "model": "hypergraph"}
    basic |= {"preset": "deterministic", "weights": "nonzeros", "directions": "forward"}
    assert PartitionOptions(4, "mtkahypar", memory_limit=1 << 30).parameters(1 << 30) == basic
    other = PartitionOptions(4, preset="large-k", weights="unit", directions="both")
    assert other.parameters(1) == basic | {"preset": "large-k", "weights": "unit", "directions": "both"}
    assert PartitionOptions(4, "metis").parameters(1)["model"] == "graph"
    assert PartitionOptions(4, "multilevel").parameters(77)["memory"] == 77


@pytest.mark.slow
def test_unit_weights_balance_vertices_and_nonzeros_balance_work(catalog: Catalog) -> None:
    dataset = catalog.create("g")
    adjacency = random_adjacency(400, 600, 0, symmetric=True).tolil()
    adjacency[:20] = 1
    adjacency[:, :20] = 1
    graph = store_graph(dataset, scipy.sparse.csr_array(adjacency), symmetric=True)
    for method in ("mtkahypar", "metis"):
        unit = partition_graph(dataset, graph, PartitionOptions(4, method, 0.05, weights="unit"), HERE).quality
        work = partition_graph(dataset, graph, PartitionOptions(4, method, 0.05), HERE).quality
        assert unit["vertices_max"] <= 106
        assert work["imbalance"] <= max(0.06, work["imbalance_bound"] + 1e-9)


@pytest.mark.parametrize("method", ["mtkahypar", "multilevel"])
def test_both_directions_reduce_the_sum_of_forward_and_backward_volume(catalog: Catalog, method: str) -> None:
    dataset = catalog.create("g")
    adjacency = random_adjacency(300, 900, 5, symmetric=False)
    graph = store_graph(dataset, adjacency, symmetric=False)
    found = {
        directions: partition_graph(
            dataset, graph, PartitionOptions(4, method, 0.05, directions=directions), HERE
        ).quality
        for directions in ("forward", "both")
    }
    total = {name: quality["volume_total"] + quality["volume_backward_total"] for name, quality in found.items()}
    assert total["both"] < total["forward"]


def test_both_directions_of_an_undirected_graph_are_refused(catalog: Catalog) -> None:
    dataset = catalog.create("g")
    graph = store_graph(dataset, random_adjacency(30, 90, 5, symmetric=True), symmetric=True)
    with pytest.raises(InputError, match="directions both: "):
        partition_graph(dataset, graph, PartitionOptions(4, directions="both"), HERE)
    assert dataset.artifacts("partition") == []


@pytest.mark.parametrize("parts", [7, 300])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_exchange_of_every_pair_is_stored_for_any_number_of_parts(
    catalog: Catalog, parts: int, symmetric: bool
) -> None:
    adjacency = random_adjacency(400, 1500, 2, symmetric=symmetric)
    dataset = catalog.create("g")
    graph = store_graph(dataset, adjacency, symmetric=symmetric)
    partition = partition_graph(dataset, graph, PartitionOptions(parts, "random"), HERE)
    for backward, matrix in ((False, adjacency), (True, adjacency.T)):
        expected = rows_sent(matrix.toarray(), partition.part(), parts)
        sender, receiver, rows = partition.exchange(backward=backward)
        assert sender.dtype == receiver.dtype == np.int32
        assert rows.dtype == np.int64
        np.testing.assert_array_equal(np.stack([sender, receiver]), np.nonzero(expected))
        np.testing.assert_array_equal(rows, expected[sender, receiver])
    assert ("exchange/forward/rows" in partition.artifact) == (parts == 300)
    partition.artifact.verify()


class FailingCluster(InProcessCluster):
    """Is interrupted when it is to count."""

    def map(self, function: Any, items: Any) -> Any:
        if function is volume.count_block:
            raise KeyboardInterrupt
        return super().map(function, items)


def test_a_run_stopped_while_counting_keeps_the_partition(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    adjacency = random_adjacency(100, 500, 0, symmetric=True)
    whole = catalog.create("whole")
    expected = partition_graph(
        whole, store_graph(whole, adjacency, symmetric=True), PartitionOptions(4, "mtkahypar"), HERE
    )
    dataset = catalog.create("stopped")
    graph = store_graph(dataset, adjacency, symmetric=True)
    with pytest.raises(KeyboardInterrupt):
        partition_graph(dataset, graph, PartitionOptions(4, "mtkahypar"), FailingCluster())

    def refuse(*_: Any) -> None:
        pytest.fail("the partition was computed twice")

    monkeypatch.setattr("gnnloom.pipeline.partition.stage.create_part_vector", refuse)
    resumed = partition_graph(dataset, graph, PartitionOptions(4, "mtkahypar"), HERE)
    assert resumed.artifact.digest == expected.artifact.digest
    assert resumed.quality == expected.quality


def test_a_balance_that_cannot_be_met_is_reported(catalog: Catalog) -> None:
    star = np.eye(30)
    star[0, :] = star[:, 0] = 1
    dataset = catalog.create("g")
    graph = store_graph(dataset, scipy.sparse.csr_array(star), symmetric=True)
    quality = partition_graph(dataset, graph, PartitionOptions(10, imbalance=0.01), HERE).quality
    average = star.sum() / 10
    assert quality["imbalance_bound"] == pytest.approx(30 / average - 1)
    assert quality["imbalance"] >= quality["imbalance_bound"] - 1e-12


def read_snap(path: Path, *, undirected: bool) -> Any:
    """A real graph with a loop on every vertex, read with NumPy alone."""
    with gzip.open(path) as file:
        source, target = np.loadtxt(file, dtype=np.int64, comments="#").T
    n = int(max(source.max(), target.max())) + 1
    matrix = scipy.sparse.coo_array((np.ones(len(source)), (target, source)), shape=(n, n)).tocsr()
    matrix = matrix + matrix.T if undirected else matrix
    matrix = (matrix + scipy.sparse.eye_array(n)).tocsr()
    matrix.data[:] = 1
    return matrix


@pytest.mark.long
def test_a_real_graph_is_cut_far_below_random(catalog: Catalog, shared_data: Path) -> None:
    dataset = catalog.create("astro")
    adjacency = read_snap(shared_data / "ca-AstroPh.txt.gz", undirected=True)
    graph = store_graph(dataset, adjacency, symmetric=True)
    found = {
        method: partition_graph(dataset, graph, PartitionOptions(8, method=method), HERE).quality
        for method in ("mtkahypar", "random")
    }
    assert found["mtkahypar"]["km1"] < 0.35 * found["random"]["km1"]
    assert found["mtkahypar"]["imbalance"] < 0.0101


@pytest.mark.long
def test_slashdot_at_eight_parts(catalog: Catalog, shared_data: Path) -> None:
    dataset = catalog.create("slashdot")
    adjacency = read_snap(shared_data / "soc-Slashdot0902.txt.gz", undirected=False)
    graph = store_graph(dataset, adjacency, symmetric=False, num_blocks=4)
    partition = partition_graph(dataset, graph, PartitionOptions(8), HERE)
    random = partition_graph(dataset, graph, PartitionOptions(8, method="random"), HERE)
    part = partition.part()
    rows, columns = adjacency.tocoo().coords
    distinct = np.unique(columns.astype(np.int64) * 8 + part[rows])
    assert partition.quality["km1"] == len(distinct) - adjacency.shape[0]
    assert partition.quality["km1"] < 0.6 * random.quality["km1"]
    shards = shard_rows(dataset, partition, HERE)
    for rank in range(8):
        matrix = shards.shard(rank).matrix()
        assert matrix.own.nnz + matrix.halo.nnz == np.diff(adjacency.indptr)[part == rank].sum()
    assert sum(len(shards.shard(rank).matrix().halo_vertex) for rank in range(8)) == partition.quality["km1"]
