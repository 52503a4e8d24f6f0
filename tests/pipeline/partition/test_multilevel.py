"""The out-of-core method: streamed results equal those in memory, and the number of workers changes no byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.partition.model.hypergraph import column_net_hypergraph
from gnnloom.pipeline.partition.multilevel import out_of_core as multilevel
from gnnloom.pipeline.partition.multilevel.clustering import cluster_vertices
from gnnloom.pipeline.partition.multilevel.contraction import contract_nets
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph, store_clusters
from gnnloom.pipeline.partition.multilevel.heavy_first import assign_heavy_first
from gnnloom.pipeline.partition.multilevel.incidence import IncidenceWriter
from gnnloom.pipeline.partition.multilevel.part_files import rows_sent as cut_of_nets
from gnnloom.pipeline.partition.multilevel.pieces import store_vector
from gnnloom.pipeline.partition.multilevel.refine import Refinement, refine
from gnnloom.pipeline.partition.multilevel.store_hypergraph import store_hypergraph
from gnnloom.pipeline.partition.multilevel.transpose_incidence import TransposeSizes, transpose_incidence
from gnnloom.pipeline.partition.partitioner import LevelSteps
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.sources.format import open_edges
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.errors import BudgetError
from gnnloom.storage.format.memory_map import create_part_vector
from support.array_memory import tracing_arrays
from support.covering import examples, few_of
from support.graphs import random_adjacency, store_graph
from support.partitions import connectivity_minus_one, random_parts, rows_sent, transpose_of
from support.twice import TwiceCluster

Item = TypeVar("Item")
Result = TypeVar("Result")

HERE = InProcessCluster()
MEMORY = 1 << 26
EXAMPLES = settings(
    max_examples=examples(16), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def lattice(side: int, seed: int = 0) -> Any:
    """A side x side grid with a loop on every vertex and scrambled ids."""
    count = side * side
    vertex = np.random.default_rng(seed).permutation(count).reshape(side, side)
    one = np.concatenate([vertex[:, :-1].ravel(), vertex[:-1].ravel(), np.arange(count)])
    other = np.concatenate([vertex[:, 1:].ravel(), vertex[1:].ravel(), np.arange(count)])
    matrix = scipy.sparse.coo_array((np.ones(len(one)), (one, other)), shape=(count, count)).tocsr()
    matrix = (matrix + matrix.T).tocsr()
    matrix.data[:] = 1
    return matrix


def pins_of(hypergraph: DiskHypergraph) -> list[set[int]]:
    """The pins of every net."""
    rows = []
    for block in hypergraph.nets.blocks():
        rows += [set(block.ids[a:b].tolist()) for a, b in zip(block.offset[:-1], block.offset[1:], strict=True)]
    return rows


def nets_of(hypergraph: DiskHypergraph) -> list[set[int]]:
    """The nets of every vertex."""
    rows = []
    for block in hypergraph.vertices.blocks():
        rows += [set(block.ids[a:b].tolist()) for a, b in zip(block.offset[:-1], block.offset[1:], strict=True)]
    return rows


def cut(hypergraph: DiskHypergraph, part: NDArray[np.int32]) -> int:
    """The weighted connectivity-1 cut, counted with sets."""
    weight = hypergraph.net_weight if len(hypergraph.net_weight) else np.ones(hypergraph.num_nets, dtype=np.int64)
    lambdas = [len({int(part[pin]) for pin in pins}) - 1 for pins in pins_of(hypergraph)]
    return int((np.array(lambdas) * weight).sum())


@EXAMPLES
@given(rows=st.lists(st.lists(st.integers(0, 20), max_size=9), max_size=30), cuts=st.integers(1, 5))
def test_lists_of_ids_come_back_in_blocks_that_cover_them(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[int]], cuts: int
) -> None:
    writer = IncidenceWriter(tmp_path_factory.mktemp("lists"), np.dtype(np.int32))
    with writer:
        for start in range(0, len(rows), cuts):
            piece = rows[start : start + cuts]
            offset = np.concatenate([[0], np.cumsum([len(row) for row in piece])]).astype(np.int64)
            writer.append(offset, np.array([item for row in piece for item in row], dtype=np.int32))
        lists = replace(writer.close(), block_ids=6)
        blocks = [block for part in lists.ranges(3) for block in lists.blocks(part)]
    found = []
    for block in blocks:
        assert len(block.ids) <= 6 or len(block.offset) == 2
        found += [block.ids[a:b].tolist() for a, b in zip(block.offset[:-1], block.offset[1:], strict=True)]
    assert found == rows
    assert [row for part in lists.ranges(3) for row in part] == list(range(len(rows)))


@pytest.mark.parametrize("capacity", [16, pytest.param(48, marks=pytest.mark.long), 1 << 20])
def test_lists_are_transposed_whatever_the_memory(tmp_path: Path, capacity: int) -> None:
    dense = random_adjacency(30, 200, 3, symmetric=False).toarray()
    dense[:, 7] = 1
    adjacency = scipy.sparse.csr_array(dense)
    with IncidenceWriter(tmp_path / "rows", np.dtype(np.int32)) as writer:
        writer.append(adjacency.indptr.astype(np.int64), adjacency.indices)
        lists = writer.close()
    transposed = transpose_incidence(
        lists, 30, tmp_path / "transposed", capacity, InProcessCluster(scratch=Scratch(page_bytes=64))
    )
    expected = adjacency.T.tocsr()
    expected.sort_indices()
    (block,) = transposed.blocks()
    np.testing.assert_array_equal(block.offset, expected.indptr)
    np.testing.assert_array_equal(block.ids, expected.indices)


@pytest.mark.slow
def test_a_long_list_is_transposed_in_little_memory(tmp_path: Path) -> None:
    num_ids, memory = 200_000, 200_000
    lists = {}
    for count in (100, num_ids):
        with IncidenceWriter(tmp_path / f"rows-{count}", np.dtype(np.int32)) as writer:
            writer.append(np.array([0, 0, count]), np.arange(count, dtype=np.int32))
            lists[count] = writer.close()
    # Loads kernels.
    transpose_incidence(lists[100], 100, tmp_path / "first", 1000, HERE)
    with tracing_arrays() as arrays:
        transposed = transpose_incidence(lists[num_ids], num_ids, tmp_path / "transposed", memory, HERE)
        # The ids of one list are in memory, but not their keys, which take 8 bytes each.
        assert 4 * num_ids <= arrays.peak() < 4 * num_ids + memory
    np.testing.assert_array_equal(transposed.offset(), np.arange(num_ids + 1))
    assert (transposed.ids() == 1).all()


class _SizingCluster(InProcessCluster):
    """Keeps how long the longest task or result is when spelled out."""

    largest = 0

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        for item in items:
            result = function(item)
            self.largest = max(self.largest, len(repr(item)) + len(repr(result)))
            yield result


def test_tasks_that_transpose_do_not_grow_with_their_number(tmp_path: Path) -> None:
    dense = scipy.sparse.csr_array(np.ones((60, 10)))
    with IncidenceWriter(tmp_path / "rows", np.dtype(np.int32)) as writer:
        writer.append(dense.indptr.astype(np.int64), dense.indices)
        lists = writer.close()
    largest = []
    for memory in (1, 1 << 20):
        cluster = _SizingCluster()
        transpose_incidence(lists, 10, tmp_path / f"memory-{memory}", memory, cluster)
        largest.append(cluster.largest)
    assert largest[0] <= largest[1] + 20


@pytest.mark.parametrize(
    ("num_ids", "workers", "num_tasks"),
    [(1 << 24, 2, 4), (1 << 28, 2, 64), (1 << 30, 2, 64), (1 << 30, 100, 100), (1 << 40, 2, 16_000)],
)
def test_many_pins_make_transposing_tasks_larger_up_to_the_memory(num_ids: int, workers: int, num_tasks: int) -> None:
    sizes = TransposeSizes.of(num_ids, 1 << 30, 80 * 100 << 20, workers)
    assert sizes.capacity <= 100 << 20
    assert sizes.num_ranges == num_tasks


@pytest.mark.slow
@EXAMPLES
@given(n=st.integers(1, 30), nnz=st.integers(0, 120), seed=st.integers(0, 10**6), symmetric=st.booleans())
def test_the_hypergraph_on_disk_is_the_one_in_memory(
    tmp_path_factory: pytest.TempPathFactory, n: int, nnz: int, seed: int, symmetric: bool
) -> None:
    folder = tmp_path_factory.mktemp("graph")
    dataset = Catalog(folder).create("g")
    graph = store_graph(dataset, random_adjacency(n, nnz, seed, symmetric=symmetric, loops=False), symmetric=symmetric)
    transpose = transpose_of(dataset, graph)
    for directions, step in (("forward", 1 << 20), ("forward", 5), ("both", 1 << 20), ("both", 5)):
        case, expected = f"{directions}-{step}", column_net_hypergraph(graph, transpose, directions=directions)
        steps = LevelSteps(read_entries=step)
        stored = store_hypergraph(folder / case, graph, transpose, HERE, directions=directions, steps=steps)
        found = stored.load()
        np.testing.assert_array_equal(found.net_offset, expected.net_offset, case)
        # Pins on disk ascend within a net; in memory the net's own vertex may come last.
        net = np.repeat(np.arange(found.num_nets), np.diff(found.net_offset))
        np.testing.assert_array_equal(found.pin, expected.pin[np.lexsort((expected.pin, net))], case)
        np.testing.assert_array_equal(found.vertex_weight, expected.vertex_weight, case)
        pins = pins_of(stored)
        nets = [{net for net, pin in enumerate(pins) if vertex in pin} for vertex in range(n)]
        assert nets_of(stored) == nets, case


@pytest.mark.parametrize("num_blocks", [1, 3, 5])
def test_nets_of_both_directions_do_not_depend_on_row_blocks(tmp_path: Path, num_blocks: int) -> None:
    """The graph has three row blocks, and its transpose as many or others."""
    n = 40
    adjacency = random_adjacency(n, 200, 5, symmetric=False, loops=False)
    catalog = Catalog(tmp_path)
    graph = store_graph(catalog.create("g"), adjacency, symmetric=False)
    transpose = store_graph(catalog.create("t"), adjacency.T.tocsr(), symmetric=False, num_blocks=num_blocks)
    stored = store_hypergraph(tmp_path / "disk", graph, transpose, TwiceCluster(), directions="both")
    dense = (adjacency.toarray() != 0) | np.eye(n, dtype=np.bool_)
    is_pin = np.concatenate([dense.T, dense])
    assert pins_of(stored) == [set(np.flatnonzero(pins).tolist()) for pins in is_pin]
    assert nets_of(stored) == [set(np.flatnonzero(nets).tolist()) for nets in is_pin.T]
    assert {path.name for path in (tmp_path / "disk" / "vertices").iterdir()} == {"id", "offset"}


@EXAMPLES
@given(n=st.integers(2, 30), nnz=st.integers(1, 150), seed=st.integers(0, 10**6), clusters=st.integers(1, 8))
def test_contraction_keeps_the_cut_of_every_partition_of_the_clusters(
    tmp_path_factory: pytest.TempPathFactory, n: int, nnz: int, seed: int, clusters: int
) -> None:
    folder = tmp_path_factory.mktemp("graph")
    graph = store_graph(Catalog(folder).create("g"), random_adjacency(n, nnz, seed, symmetric=True), symmetric=True)
    fine = store_hypergraph(folder / "fine", graph, graph, HERE)
    _, label = np.unique(random_parts(n, clusters, seed), return_inverse=True)
    clustered = store_clusters(fine, label, folder / "coarse")
    coarse = contract_nets(fine, clustered, folder / "coarse", HERE).on_disk(MEMORY, HERE)
    assert coarse.num_vertices == label.max() + 1
    np.testing.assert_array_equal(coarse.vertex_weight, np.bincount(label, weights=fine.vertex_weight))
    distinct = [frozenset(pins) for pins in pins_of(coarse)]
    assert len(set(distinct)) == len(distinct)
    assert nets_of(coarse) == [
        {net for net, pins in enumerate(distinct) if vertex in pins} for vertex in range(coarse.num_vertices)
    ]
    part = random_parts(coarse.num_vertices, 3, seed + 1)
    assert cut(coarse, part) == cut(fine, part[label])
    assert cut_of_nets(coarse, store_vector(folder / "part.npy", part), 3, HERE) == cut(coarse, part)


@EXAMPLES
@given(n=st.integers(1, 60), nnz=st.integers(0, 200), seed=st.integers(0, 10**6), limit=st.integers(1, 60))
def test_clusters_are_numbered_and_within_the_limit(
    tmp_path_factory: pytest.TempPathFactory, n: int, nnz: int, seed: int, limit: int
) -> None:
    folder = tmp_path_factory.mktemp("graph")
    graph = store_graph(Catalog(folder).create("g"), random_adjacency(n, nnz, seed, symmetric=True), symmetric=True)
    hypergraph = store_hypergraph(folder / "disk", graph, graph, HERE)
    label = cluster_vertices(hypergraph, limit, 3)
    assert sorted(set(label.tolist())) == list(range(label.max() + 1))
    weight, size = np.bincount(label, weights=hypergraph.vertex_weight), np.bincount(label)
    assert (weight[size > 1] <= limit).all()


@EXAMPLES
@given(n=st.integers(1, 200), parts=st.integers(1, 20), seed=st.integers(0, 10**6))
def test_heavy_first_parts_are_balanced(n: int, parts: int, seed: int) -> None:
    weight = np.random.default_rng(seed).integers(1, 50, n)
    part = np.empty(n, dtype=np.int32)
    load = assign_heavy_first(weight, parts, seed, part)
    np.testing.assert_array_equal(load, np.bincount(part, weights=weight, minlength=parts))
    assert load.max() <= weight.sum() / parts + weight.max()
    assert len(set(part.tolist())) == min(n, parts)


@pytest.mark.parametrize(("parts", "memory"), [(5, MEMORY), (150, MEMORY), (150, 1)])
def test_refinement_without_heat_lowers_the_cut_within_the_balance(tmp_path: Path, parts: int, memory: int) -> None:
    """With memory for one word of masks per net, 150 parts are refined in three windows."""
    graph = store_graph(Catalog(tmp_path).create("g"), lattice(30), symmetric=True)
    hypergraph = store_hypergraph(tmp_path / "disk", graph, graph, HERE)
    part = create_part_vector(tmp_path / "part.npy", 900)
    assign_heavy_first(hypergraph.vertex_weight, parts, 0, part)
    cuts = [cut(hypergraph, part)]
    for seed in range(4):
        refinement = Refinement(parts, 0.1, seed, 1, memory, 0.0)
        assert refinement.num_words(900) == (3 if memory == MEMORY and parts == 150 else 1)
        refine(hypergraph, part, tmp_path / "part.npy", refinement, tmp_path / "masks", HERE)
        cuts.append(cut(hypergraph, part))
        load = np.bincount(part, weights=hypergraph.vertex_weight, minlength=parts)
        assert load.max() <= np.floor(1.1 * np.ceil(load.sum() / parts))
    assert sorted(cuts, reverse=True) == cuts
    assert cuts[-1] < 0.8 * cuts[0]


def test_hubs_with_pins_in_all_parts_do_not_hide_the_gain_of_moves(tmp_path: Path) -> None:
    """The nets of ten hubs have pins in all 64 parts, so no move changes their cut."""
    adjacency = lattice(30).tolil()
    adjacency[:10] = 1
    adjacency[:, :10] = 1
    graph = store_graph(Catalog(tmp_path).create("g"), adjacency.tocsr(), symmetric=True)
    hypergraph = store_hypergraph(tmp_path / "disk", graph, graph, HERE)
    part = create_part_vector(tmp_path / "part.npy", 900)
    part[:] = np.random.default_rng(0).permutation(np.arange(900) % 64)
    before = cut(hypergraph, part)
    refine(hypergraph, part, tmp_path / "part.npy", Refinement(64, 0.5, 0, 6, MEMORY, 0.0), tmp_path / "masks", HERE)
    # Every net has a pin in each of the hubs' ten parts, and a hub's net in all 64: about 9 x 900 + 63 x 10 = 8730
    # of the cut are out of reach.
    assert cut(hypergraph, part) - 8730 < 0.5 * (before - 8730)


def test_refinement_repairs_a_part_that_is_too_heavy(tmp_path: Path) -> None:
    graph = store_graph(Catalog(tmp_path).create("g"), lattice(20), symmetric=True)
    hypergraph = store_hypergraph(tmp_path / "disk", graph, graph, HERE)
    part = create_part_vector(tmp_path / "part.npy", 400)
    part[:] = np.arange(400) % 5 == 0
    refine(hypergraph, part, tmp_path / "part.npy", Refinement(4, 0.05, 0, 16, MEMORY, 1.5), tmp_path / "masks", HERE)
    load = np.bincount(part, weights=hypergraph.vertex_weight, minlength=4)
    assert load.max() <= np.floor(1.05 * np.ceil(load.sum() / 4))


def coarsen_to(monkeypatch: pytest.MonkeyPatch, pins: int) -> None:
    """Let only hypergraphs of up to so many pins fit in memory."""
    monkeypatch.setattr(multilevel, "fits_natively", lambda size, *_: size <= pins)


@pytest.mark.slow
def test_a_lattice_is_coarsened_partitioned_and_refined(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = catalog.create("g")
    adjacency = lattice(60)
    graph = store_graph(dataset, adjacency, symmetric=True)
    whole = partition_graph(dataset, graph, PartitionOptions(4, "mtkahypar", 0.03), HERE).quality
    coarsen_to(monkeypatch, 8000)
    options = PartitionOptions(4, "multilevel", imbalance=0.03)
    partition = partition_graph(dataset, graph, options, HERE)
    quality = partition.quality
    assert len(quality["levels"]) > 1
    assert quality["levels"][-1]["pins"] <= 8000
    assert quality["start"] == "mtkahypar"
    assert quality["km1"] == rows_sent(adjacency.toarray(), partition.part(), 4).sum()
    assert quality["imbalance"] <= 0.03
    assert quality["km1"] < 1.06 * whole["km1"]


def test_a_graph_that_does_not_shrink_starts_from_heavy_first_parts(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = catalog.create("g")
    graph = store_graph(dataset, random_adjacency(800, 12000, 1, symmetric=True), symmetric=True)
    coarsen_to(monkeypatch, 10)
    quality = partition_graph(dataset, graph, PartitionOptions(4, "multilevel"), HERE).quality
    random = partition_graph(dataset, graph, PartitionOptions(4, "random"), HERE).quality
    assert quality["start"] == "heavy-first"
    assert quality["imbalance"] < 0.0101
    assert quality["km1"] < random["km1"]


@pytest.mark.slow
def test_streaming_coarsens_even_what_fits_and_starts_no_native_partitioner(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multilevel, "native_partition", lambda *_: pytest.fail("a native partitioner was started"))
    dataset = catalog.create("g")
    adjacency = lattice(60)
    graph = store_graph(dataset, adjacency, symmetric=True)
    found = {
        preset: partition_graph(dataset, graph, PartitionOptions(4, "multilevel", 0.03, preset=preset), HERE)
        for preset in ("flat", "streaming")
    }
    streaming, flat = found["streaming"].quality, found["flat"].quality
    assert [streaming["start"], flat["start"]] == ["heavy-first"] * 2
    assert len(streaming["levels"]) > 1 == len(flat["levels"])
    assert streaming["km1"] == rows_sent(adjacency.toarray(), found["streaming"].part(), 4).sum()
    assert streaming["km1"] < 0.5 * flat["km1"]
    assert streaming["imbalance"] <= 0.03


@pytest.mark.long
def test_where_no_level_fits_streaming_sends_fewer_rows_of_a_social_graph_than_auto(
    catalog: Catalog, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coarsen_to(monkeypatch, 0)
    options = {"weights": False, "header": False, "extra_columns": False}
    source = open_edges(None, (str(shared_data / "soc-Epinions1.txt.gz"),), options)
    dataset = catalog.create("epinions")
    graph = ingest_graph(dataset, source, IngestOptions(), HERE)
    auto, streaming = (
        partition_graph(dataset, graph, PartitionOptions(16, "multilevel", preset=preset), HERE).quality
        for preset in ("auto", "streaming")
    )
    assert (auto["start"], streaming["start"]) == ("heavy-first", "heavy-first")
    assert len(streaming["levels"]) > len(auto["levels"])
    assert streaming["km1"] < 0.95 * auto["km1"]


DEGENERATE = {
    "loops": scipy.sparse.eye_array(12).tocsr(),
    "empty": scipy.sparse.csr_array((12, 12)),
    "complete": scipy.sparse.csr_array(np.ones((12, 12))),
    "sparse": random_adjacency(12, 6, 0, symmetric=True, loops=False),
}


@pytest.mark.parametrize(("name", "parts", "fits"), few_of(DEGENERATE, [1, 5, 12], [0, 10**9], together=2))
def test_degenerate_graphs_get_no_empty_parts(
    catalog: Catalog, name: str, parts: int, fits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    coarsen_to(monkeypatch, fits)
    dataset = catalog.create("g")
    graph = store_graph(dataset, DEGENERATE[name], symmetric=True)
    part = partition_graph(dataset, graph, PartitionOptions(parts, "multilevel"), HERE).part()
    assert set(part.tolist()) == set(range(parts))


def pairs_alone(num_vertices: int, num_pairs: int) -> Any:
    """Vertices without loops; the first few are joined in pairs."""
    row = np.arange(2 * num_pairs)
    entries = (np.ones(len(row)), (row, row ^ 1))
    return scipy.sparse.coo_array(entries, shape=(num_vertices, num_vertices)).tocsr()


@pytest.mark.parametrize(("num_vertices", "num_pairs"), [(2000, 1000), (1000, 2)])
def test_coarsening_until_no_net_is_left_gives_balanced_parts(
    catalog: Catalog, num_vertices: int, num_pairs: int
) -> None:
    graph = store_graph(catalog.create("g"), pairs_alone(num_vertices, num_pairs), symmetric=True)
    options = PartitionOptions(2, "multilevel", preset="streaming")
    partition = partition_graph(catalog["g"], graph, options, HERE)
    assert partition.quality["levels"][-1]["pins"] == 0
    assert partition.quality["start"] == "heavy-first"
    assert partition.quality["km1"] == 0
    assert np.abs(np.bincount(partition.part()) - num_vertices / 2).max() <= 2


def test_a_graph_with_too_many_vertices_for_the_memory_is_refused(catalog: Catalog) -> None:
    graph = store_graph(catalog.create("g"), lattice(8), symmetric=True)
    with pytest.raises(BudgetError, match="method multilevel: 64 vertices: "):
        partition_graph(catalog["g"], graph, PartitionOptions(4, "multilevel", memory_limit=1 << 20), HERE)


def test_one_part_needs_no_hypergraph_and_no_memory(catalog: Catalog) -> None:
    graph = store_graph(catalog.create("g"), lattice(8), symmetric=True)
    for parts in (1, 64):
        for method in ("multilevel", "mtkahypar"):
            options = PartitionOptions(parts, method, memory_limit=1)
            partition = partition_graph(catalog["g"], graph, options, InProcessCluster())
            assert len(set(partition.part().tolist())) == parts


def test_a_failed_run_leaves_no_levels(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = store_graph(catalog.create("g"), lattice(8), symmetric=True)

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(multilevel, "refine", fail)
    with pytest.raises(KeyboardInterrupt):
        partition_graph(catalog["g"], graph, PartitionOptions(4, "multilevel"), HERE)
    (info,) = catalog["g"].artifacts("partition")
    assert not [path for path in (info.path / ".work").rglob("*") if path.name.startswith("level")]


def test_the_two_reference_counters_of_the_cut_agree(catalog: Catalog, tmp_path: Path) -> None:
    graph = store_graph(catalog.create("g"), lattice(8), symmetric=True)
    part = random_parts(64, 5, 0)
    stored = store_hypergraph(tmp_path / "disk", graph, graph, HERE)
    assert cut(stored, part) == connectivity_minus_one(column_net_hypergraph(graph, graph), part)
