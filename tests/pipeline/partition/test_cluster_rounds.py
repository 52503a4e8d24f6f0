"""Rounds of tasks cluster and place vertices as well as one process, with the same bytes for any number of workers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnnloom.pipeline.partition.multilevel import cluster_joins, contraction
from gnnloom.pipeline.partition.multilevel.cluster_rounds import cluster_in_rounds
from gnnloom.pipeline.partition.multilevel.clustering import cluster_vertices
from gnnloom.pipeline.partition.multilevel.contraction import contract_nets
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import Clusters, DiskHypergraph
from gnnloom.pipeline.partition.multilevel.heavy_first import assign_heavy_first, deal_heavy_first
from gnnloom.pipeline.partition.multilevel.incidence import IncidenceBlock
from gnnloom.pipeline.partition.multilevel.pieces import store_vector
from gnnloom.pipeline.partition.multilevel.store_hypergraph import store_hypergraph
from gnnloom.pipeline.partition.multilevel.ways import pins_left
from gnnloom.pipeline.partition.partitioner import LevelSteps
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.tasks.cluster import DEFAULT_MEMORY, Cluster, InProcessCluster, ThreadedCluster
from gnnloom.pipeline.tasks.memory import MINIMUM_MEMORY
from gnnloom.storage import Catalog
from gnnloom.storage.disk.numpy_files import map_array
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.format.memory_map import create_part_vector
from support.covering import examples
from support.graphs import random_adjacency, store_graph
from support.partitions import transpose_of
from support.twice import TwiceCluster

HERE, MEMORY = InProcessCluster(), 1 << 26
CLUSTERS: tuple[Cluster, ...] = (HERE, TwiceCluster(), ThreadedCluster(3, DEFAULT_MEMORY))
EXAMPLES = settings(
    max_examples=examples(14), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def lattice(side: int, *, scattered: bool) -> Any:
    """A side x side grid with a loop on every vertex."""
    path = scipy.sparse.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(side, side))
    both = scipy.sparse.kron(path, scipy.sparse.eye_array(side)) + scipy.sparse.kron(scipy.sparse.eye_array(side), path)
    matrix = both.tocsr()
    matrix.data[:] = 1
    order = np.random.default_rng(0).permutation(side * side) if scattered else np.arange(side * side)
    return matrix[order][:, order].tocsr()


def stored(folder: Path, adjacency: Any, *, symmetric: bool = True) -> DiskHypergraph:
    dataset = Catalog(folder).create("g")
    graph = store_graph(dataset, adjacency, symmetric=symmetric)
    return store_hypergraph(folder / "disk", graph, transpose_of(dataset, graph), HERE)


def limit_of(hypergraph: DiskHypergraph) -> int:
    return 6 * hypergraph.total_weight // hypergraph.num_vertices


def check(hypergraph: DiskHypergraph, found: Clusters, limit: int) -> None:
    label, weight = found.label, map_array(found.weight_path)
    assert sorted(set(label.tolist())) == list(range(found.num_clusters))
    np.testing.assert_array_equal(weight, np.bincount(label, weights=hypergraph.vertex_weight))
    assert (weight[np.bincount(label) > 1] <= limit).all()
    assert (found.total_weight, found.heaviest) == (weight.sum(), weight.max())


@pytest.mark.slow
@EXAMPLES
@given(n=st.integers(1, 60), nnz=st.integers(0, 200), seed=st.integers(0, 10**6), limit=st.integers(1, 60))
def test_clusters_are_numbered_and_within_the_limit(
    tmp_path_factory: pytest.TempPathFactory, n: int, nnz: int, seed: int, limit: int
) -> None:
    folder = tmp_path_factory.mktemp("graph")
    hypergraph = stored(folder, random_adjacency(n, nnz, seed, symmetric=True))
    check(hypergraph, cluster_in_rounds(hypergraph, limit, 2, folder / "clusters", HERE), limit)


@pytest.mark.slow
def test_tasks_of_any_size_make_the_same_hypergraph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adjacency, steps = random_adjacency(300, 1700, 1, symmetric=False, loops=False), LevelSteps(rounds=4)
    hypergraph = stored(tmp_path, adjacency, symmetric=False)
    hypergraph = replace(hypergraph, steps=replace(steps, task_vertices=50))
    contents = []
    for number, cluster in enumerate((*CLUSTERS, InProcessCluster(MINIMUM_MEMORY))):
        if number == len(CLUSTERS):
            # So many tasks that joins are read by fewer than wrote them, that nets are contracted by many, and that
            # several lanes are in a file.
            monkeypatch.setattr(contraction, "_NET_BYTES", 1 << 21)
            few = Scratch(files=3, page_bytes=64, sources=2)
            hypergraph = replace(hypergraph, scratch=few, steps=replace(steps, task_vertices=10))
        folder = tmp_path / f"level-{number}"
        found = cluster_in_rounds(hypergraph, limit_of(hypergraph), 3, folder, cluster)
        check(hypergraph, found, limit_of(hypergraph))
        contract_nets(hypergraph, found, folder, cluster).on_disk(MEMORY, cluster)
        contents.append({path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()})
    assert contents[0] == contents[1] == contents[2] == contents[3]
    names = {str(path) for path in contents[0]}
    # Whatever else the tasks wrote is gone.
    assert names == {
        "label.npy", "weight.npy", "net-weight.npy", "nets/id", "nets/offset", "vertices/id", "vertices/offset",
    }  # fmt: skip
    assert found.num_clusters < 0.7 * hypergraph.num_vertices


def test_vertices_that_choose_each_other_do_not_trade_places(tmp_path: Path) -> None:
    """Joined pairs with neighboring numbers, which choose in the same round."""
    row = np.arange(400)
    pairs = scipy.sparse.coo_array((np.ones(400), (row, row ^ 1)), shape=(400, 400)).tocsr()
    hypergraph = stored(tmp_path, pairs)
    label = cluster_in_rounds(hypergraph, 10, 1, tmp_path / "clusters", HERE).label
    np.testing.assert_array_equal(label, row // 2)


@pytest.mark.parametrize(("num_nets", "proposed"), [(1 << 16, 1), ((1 << 16) + 1, 0)])
def test_a_hub_joins_no_cluster_and_takes_no_table(num_nets: int, proposed: int) -> None:
    """Vertex 0 shares each of its nets with vertex 1, and both weigh as little as any other."""
    nets = np.arange(num_nets, dtype=np.int32)
    block, weight = IncidenceBlock(0, np.array([0, num_nets]), nets), np.ones(2, dtype=np.int64)
    profile = np.zeros((num_nets, 2, 4), dtype=np.int32)
    profile[:, 0] = -1
    profile[:, :, :2] = [[0, 1], [1, 1]]
    rating, label, joins = np.ones(num_nets, dtype=np.float32), np.arange(2, dtype=np.int32), np.empty((1, 3), np.int64)
    # A round maps its arrays. For others, the kernel would have to be compiled again.
    for mapped in (weight, rating, profile, label):
        mapped.setflags(write=False)
    found = cluster_joins.propose_joins(block, weight, rating, profile, label, weight, 10, 0, 1, np.uint64(0), joins)
    assert found == proposed
    size = cluster_joins._table_size(block, weight, 10)
    assert size >= 2 * 4 * num_nets if proposed else size <= 16


@pytest.mark.slow
@pytest.mark.parametrize(
    "adjacency",
    [
        lattice(50, scattered=True),
        pytest.param(lattice(50, scattered=False), marks=pytest.mark.long),
        pytest.param(random_adjacency(2000, 12_000, 4, symmetric=True), marks=pytest.mark.long),
    ],
    ids=["scattered lattice", "lattice", "random"],
)
def test_rounds_absorb_about_as_many_pins_as_one_vertex_after_the_other(tmp_path: Path, adjacency: Any) -> None:
    hypergraph = stored(tmp_path, adjacency)
    found = cluster_in_rounds(hypergraph, limit_of(hypergraph), 5, tmp_path / "clusters", HERE)
    one_by_one = pins_left(hypergraph, cluster_vertices(hypergraph, limit_of(hypergraph), 5))
    assert pins_left(hypergraph, found.label) <= 1.1 * one_by_one
    assert one_by_one < 0.9


@EXAMPLES
@given(
    n=st.integers(1, 400),
    most=st.sampled_from([1, 3, 50]),
    parts=st.integers(1, 20),
    seed=st.integers(0, 10**6),
    size=st.integers(20, 500),
)
def test_parts_get_as_many_vertices_of_each_weight_as_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory, n: int, most: int, parts: int, seed: int, size: int
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    weight = np.random.default_rng(seed).integers(1, most + 1, n)
    weight_path, part_path = store_vector(folder / "weight.npy", weight), folder / "part.npy"
    create_part_vector(part_path, n)
    expected = np.empty(n, dtype=np.int32)
    assign_heavy_first(weight, parts, seed, expected)
    found = set()
    for tasks_of in (size, 1 << 20):
        stated = DiskHypergraph.stated(n, 0, 0, steps=LevelSteps(task_vertices=tasks_of))
        hypergraph = replace(stated, weight_path=weight_path)
        deal_heavy_first(hypergraph, part_path, parts, seed, folder / "classes", HERE)
        found.add(map_array(part_path).tobytes())
    assert len(found) == 1
    assert sorted(zip(weight, map_array(part_path), strict=True)) == sorted(zip(weight, expected, strict=True))
    assert not (folder / "classes").exists()


@pytest.mark.long
def test_a_hypergraph_for_tasks_is_coarsened_and_refined(catalog: Catalog) -> None:
    dataset, steps = catalog.create("g"), LevelSteps(few_pins=0)
    graph = store_graph(dataset, lattice(40, scattered=True), symmetric=True)
    streaming, flat = (
        partition_graph(
            dataset, graph, PartitionOptions(4, "multilevel", 0.03, preset=preset), HERE, steps=steps
        ).quality
        for preset in ("streaming", "flat")
    )
    assert len(streaming["levels"]) > 2
    assert streaming["imbalance"] <= 0.03
    assert streaming["km1"] < 0.7 * flat["km1"]
