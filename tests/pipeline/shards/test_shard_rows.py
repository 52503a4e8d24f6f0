"""Row shards: reassembled they are the matrix, and each rank sends what the receiver's halo expects."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort import merge_levels
from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.shards.rows import row_routed
from gnnloom.pipeline.shards.rows.row_routed import RoutedMatrix, RoutedRank, RowSegment, row_shuffle
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import CSR, Catalog, Dataset, Graph, Partition, RowShards
from gnnloom.storage.checks.shard_invariants import check_row_shards
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.format.artifact import ArtifactWriter
from support.graphs import random_adjacency, store_graph, store_vertices, write_block
from support.partitions import random_parts, rows_sent, store_partition
from support.stopping import StoppedError, StoppingCluster

HERE = InProcessCluster()


def to_scipy(block: CSR) -> Any:
    data = np.ones(block.nnz) if block.data is None else block.data
    return scipy.sparse.csr_array((data, block.indices, block.indptr), shape=(block.num_rows, block.num_columns))


def reassemble(shards: RowShards, *, transpose: bool) -> NDArray[Any]:
    """The dense matrix, from the shards alone."""
    n = shards.num_vertices
    matrix = np.zeros((n, n))
    for rank in range(shards.num_parts):
        shard = shards.shard(rank)
        stored = shard.matrix(transpose)
        vertex = shard.vertex()
        for block, columns in ((stored.own, vertex), (stored.halo, stored.halo_vertex)):
            assert block.num_rows == len(vertex)
            assert block.nnz == len(block.indices)
            matrix[np.ix_(vertex, columns)] += to_scipy(block).toarray()
    return matrix


def check_exchange(shards: RowShards, part: NDArray[np.int32], *, transpose: bool) -> NDArray[np.int64]:
    """Check that every send list is what the receiver's halo expects, in its order; returns the (P, P) rows sent."""
    parts = shards.num_parts
    matrices = [shards.shard(rank).matrix(transpose) for rank in range(parts)]
    vertices = [shards.shard(rank).vertex() for rank in range(parts)]
    sent = np.zeros((parts, parts), dtype=np.int64)
    for receiver, matrix in enumerate(matrices):
        np.testing.assert_array_equal(
            np.lexsort((matrix.halo_vertex, part[matrix.halo_vertex])), np.arange(len(matrix.halo_vertex))
        )
        assert set(matrix.halo.indices.tolist()) == set(range(len(matrix.halo_vertex)))
        for sender in range(parts):
            halo = matrix.halo_vertex[matrix.halo_offset[sender] : matrix.halo_offset[sender + 1]]
            assert (part[halo] == sender).all()
            a, b = matrices[sender].send_offset[receiver : receiver + 2]
            np.testing.assert_array_equal(vertices[sender][matrices[sender].send_row[a:b]], halo)
            sent[sender, receiver] = b - a
    assert (np.diag(sent) == 0).all()
    return sent


def check_shards(shards: RowShards, adjacency: Any, part: NDArray[np.int32]) -> None:
    """Compare shards with the matrix: entries, order within rows, vertices, and rows sent."""
    dense = adjacency.toarray()
    np.testing.assert_array_equal(reassemble(shards, transpose=False), dense)
    np.testing.assert_array_equal(reassemble(shards, transpose=True), dense.T)
    for rank in range(shards.num_parts):
        np.testing.assert_array_equal(shards.shard(rank).vertex(), np.flatnonzero(part == rank))
        matrix = shards.shard(rank).matrix()
        assert to_scipy(matrix.own).has_canonical_format
        assert to_scipy(matrix.halo).has_canonical_format
    sent = check_exchange(shards, part, transpose=False)
    np.testing.assert_array_equal(sent, rows_sent(dense, part, shards.num_parts))
    sent = check_exchange(shards, part, transpose=True)
    np.testing.assert_array_equal(sent, rows_sent(dense.T, part, shards.num_parts))


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize("symmetric", [True, False])
def test_reassembled_shards_are_the_matrix(catalog: Catalog, parts: int, symmetric: bool) -> None:
    adjacency = random_adjacency(60, 200, parts, symmetric=symmetric, loops=parts != 3)
    dataset = catalog.create("g")
    graph = store_graph(dataset, adjacency, symmetric=symmetric)
    part = random_parts(60, parts, 1)
    shards = shard_rows(dataset, store_partition(dataset, graph, part, parts), HERE)
    check_shards(shards, adjacency, part)
    assert shards.artifact.verify() > 0
    assert ("row/00000/transpose/own/indptr" in shards.artifact) is not symmetric


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    num_vertices=st.integers(1, 25),
    nnz=st.integers(0, 100),
    seed=st.integers(0, 10**6),
    symmetric=st.booleans(),
    parts=st.integers(1, 5),
)
def test_shards_of_any_small_graph_and_partition_are_exact(
    catalog: Catalog, num_vertices: int, nnz: int, seed: int, symmetric: bool, parts: int
) -> None:
    adjacency = random_adjacency(num_vertices, nnz, seed, symmetric=symmetric, loops=seed % 2 == 0)
    dataset = catalog.create(f"g-{num_vertices}-{nnz}-{seed}-{symmetric}-{parts}".lower())
    graph = store_graph(dataset, adjacency, symmetric=symmetric)
    part = random_parts(num_vertices, parts, seed)
    check_shards(shard_rows(dataset, store_partition(dataset, graph, part, parts), HERE), adjacency, part)


def test_ranks_without_vertices_and_more_ranks_than_vertices(catalog: Catalog) -> None:
    adjacency = random_adjacency(4, 10, 0, symmetric=False)
    dataset = catalog.create("g")
    graph = store_graph(dataset, adjacency, symmetric=False)
    part = np.array([6, 2, 6, 0], dtype=np.int32)
    shards = shard_rows(dataset, store_partition(dataset, graph, part, 9), HERE)
    check_shards(shards, adjacency, part)
    assert shards.shard(8).matrix().own.num_rows == 0


def test_vertex_data_go_to_the_owner_in_the_order_of_its_vertices(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnnloom.pipeline.shards.rows.row_plan._CHUNKS_PER_TASK", 1)
    monkeypatch.setattr("gnnloom.storage.format.arrays.CHUNK_BYTES", 256)
    rng = np.random.default_rng(0)
    n, parts = 100, 3
    dataset = catalog.create("g")
    graph = store_graph(dataset, random_adjacency(n, 300, 0, symmetric=True), symmetric=True)
    feature, label = rng.random((n, 5)).astype(np.float32), rng.integers(-1, 4, n)
    split = rng.integers(0, 4, n)
    store_vertices(dataset, feature, label, split)
    part = random_parts(n, parts, 1)
    shards = shard_rows(dataset, store_partition(dataset, graph, part, parts), HERE)
    assert (shards.num_features, shards.num_classes) == (5, 4)
    for rank in range(parts):
        shard = shards.shard(rank)
        for name, array in (("feature", feature), ("label", label), ("split", split)):
            np.testing.assert_array_equal(shard.read(name), array[part == rank])
        assert shard.read("feature").dtype == np.float32


def test_labels_without_features(catalog: Catalog) -> None:
    dataset = catalog.create("g")
    graph = store_graph(dataset, random_adjacency(10, 30, 0, symmetric=True), symmetric=True)
    store_vertices(dataset, None, np.arange(10) % 3, None)
    part = random_parts(10, 2, 1)
    shards = shard_rows(dataset, store_partition(dataset, graph, part, 2), HERE)
    assert shards.num_features == 0
    assert "feature" not in shards.shard(0)
    np.testing.assert_array_equal(shards.shard(1).read("label"), np.flatnonzero(part == 1) % 3)


def test_vertex_data_of_another_graph_are_refused(catalog: Catalog) -> None:
    dataset = catalog.create("g")
    graph = store_graph(dataset, random_adjacency(10, 30, 0, symmetric=True), symmetric=True)
    store_vertices(dataset, None, np.zeros(11), None)
    partition = store_partition(dataset, graph, random_parts(10, 2, 1), 2)
    with pytest.raises(InputError, match=r"11 vertices.*has 10"):
        shard_rows(dataset, partition, HERE)


def store_weighted_graph(dataset: Dataset, adjacency: Any) -> Graph:
    """A symmetric weighted graph in two blocks."""
    n = adjacency.shape[0]
    rows = [0, n // 2, n]
    with ArtifactWriter.begin(dataset.path, "graph", {"weighted": True}, {}) as writer:
        for number in range(2):
            piece = adjacency[rows[number] : rows[number + 1]]
            block = CSR(rows[number], piece.indptr.astype(np.int64), piece.indices, piece.data.astype(np.float32), n)
            with writer.task(f"block/{number:05d}") as output:
                for record in write_block(writer.path, number, block):
                    output.add(record)
        with writer.task("degree/0") as output:
            output.add(write_array(writer.path, "degree", np.diff(adjacency.indptr).astype(np.int64), ("vertex",)))
        nnz = [int(adjacency[a:b].nnz) for a, b in pairwise(rows)]
        facts = {"nnz": sum(nnz), "symmetric": True, "weighted": True, "block_rows": rows, "block_nnz": nnz}
        return Graph(writer.commit(["block/00000", "block/00001", "degree/0"], {"vertex": n}, facts))


def test_weights_stay_with_their_edges(catalog: Catalog) -> None:
    adjacency = random_adjacency(40, 150, 0, symmetric=True)
    weights = scipy.sparse.tril(adjacency.multiply(np.random.default_rng(1).random((40, 40))), k=-1).astype(np.float32)
    adjacency = (weights + weights.T + scipy.sparse.eye_array(40, dtype=np.float32)).tocsr()
    adjacency.sort_indices()
    dataset = catalog.create("g")
    graph = store_weighted_graph(dataset, adjacency)
    part = random_parts(40, 3, 1)
    shards = shard_rows(dataset, store_partition(dataset, graph, part, 3), HERE)
    assert shards.weighted
    np.testing.assert_array_equal(reassemble(shards, transpose=False), adjacency.toarray())


@pytest.mark.parametrize(
    ("size", "reorder"),
    [
        (1, "degree"),
        (40, "none"),
        pytest.param(1, "none", marks=pytest.mark.long),
        pytest.param(40, "degree", marks=pytest.mark.long),
    ],
)
def test_the_size_of_segments_changes_no_byte(
    catalog: Catalog, size: int, reorder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    adjacency = random_adjacency(50, 300, 2, symmetric=False)
    part = random_parts(50, 3, 1)

    def digest(name: str) -> str:
        dataset = catalog.create(name)
        graph = store_graph(dataset, adjacency, symmetric=False)
        return shard_rows(dataset, store_partition(dataset, graph, part, 3), HERE, reorder=reorder).artifact.digest

    whole = digest("whole")
    monkeypatch.setattr("gnnloom.pipeline.shards.rows.row_routed.SEGMENT_NONZEROS", size)
    monkeypatch.setattr("gnnloom.pipeline.shards.rows.row_halo._PENDING_IDS", size)
    assert digest("pieces") == whole


def _degree_order(adjacency: Any, part: NDArray[np.int32], rank: int) -> NDArray[np.int64]:
    """The vertices of a rank: the largest degree first, and equal ones by id."""
    vertices = np.flatnonzero(part == rank)
    order: NDArray[np.int64] = np.lexsort((vertices, -np.diff(adjacency.indptr)[vertices]))
    return vertices[order]


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("symmetric", [True, False])
def test_reordered_rows_begin_with_the_largest_degree(
    catalog: Catalog, parts: int, symmetric: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnnloom.storage.format.arrays.CHUNK_BYTES", 256)
    monkeypatch.setattr("gnnloom.pipeline.shards.rows.row_order._MOVED_BYTES", 100)
    adjacency = random_adjacency(80, 400, parts, symmetric=symmetric)
    dataset = catalog.create("g")
    graph = store_graph(dataset, adjacency, symmetric=symmetric, num_blocks=3)
    rng = np.random.default_rng(0)
    feature, label = rng.random((80, 5)).astype(np.float32), rng.integers(-1, 4, 80)
    store_vertices(dataset, feature, label, rng.integers(0, 4, 80))
    part = random_parts(80, parts, 1)
    partition = store_partition(dataset, graph, part, parts)
    shards, plain = shard_rows(dataset, partition, HERE, reorder="degree"), shard_rows(dataset, partition, HERE)
    assert (shards.reorder, plain.reorder) == ("degree", "none")
    assert shards.artifact.key != plain.artifact.key
    assert "reorder" not in plain.artifact.parameters
    for transpose in (False, True):
        np.testing.assert_array_equal(reassemble(shards, transpose=transpose), reassemble(plain, transpose=transpose))
        sent = check_exchange(shards, part, transpose=transpose)
        np.testing.assert_array_equal(sent, check_exchange(plain, part, transpose=transpose))
    for rank in range(parts):
        shard, expected = shards.shard(rank), _degree_order(adjacency, part, rank)
        np.testing.assert_array_equal(shard.vertex(), expected)
        np.testing.assert_array_equal(shard.read("feature"), feature[expected])
        np.testing.assert_array_equal(shard.read("label"), label[expected])
        assert to_scipy(shard.matrix().own).has_canonical_format
        assert to_scipy(shard.matrix().halo).has_canonical_format
    check_row_shards(shards.artifact, int(adjacency.nnz))
    with pytest.raises(InputError, match="reorder 'size': expected one of none, degree"):
        shard_rows(dataset, partition, HERE, reorder="size")


def test_reordered_rows_keep_their_weights(catalog: Catalog) -> None:
    adjacency = random_adjacency(40, 150, 0, symmetric=True)
    adjacency.data = np.random.default_rng(1).random(adjacency.nnz).astype(np.float32)
    dataset = catalog.create("g")
    graph = store_weighted_graph(dataset, adjacency)
    # The last rank has no vertex.
    part = random_parts(40, 2, 1)
    shards = shard_rows(dataset, store_partition(dataset, graph, part, 3), HERE, reorder="degree")
    np.testing.assert_array_equal(reassemble(shards, transpose=False), adjacency.toarray())
    assert shards.shard(2).matrix().own.num_rows == 0


def make_everything(catalog: Catalog) -> tuple[Partition, RowShards]:
    dataset = catalog.create("g")
    graph = store_graph(dataset, random_adjacency(300, 2000, 0, symmetric=False), symmetric=False, num_blocks=5)
    store_vertices(dataset, np.random.default_rng(0).random((300, 4)), np.arange(300) % 3, None)
    partition = partition_graph(dataset, graph, PartitionOptions(4, method="random"), HERE)
    return partition, shard_rows(dataset, partition, HERE)


def test_the_halos_are_as_large_as_the_counted_volume(catalog: Catalog) -> None:
    partition, shards = make_everything(catalog)
    quality = partition.quality
    for transpose, direction in ((False, ""), (True, "backward_")):
        halos = [len(shards.shard(rank).matrix(transpose).halo_vertex) for rank in range(4)]
        sends = [len(shards.shard(rank).matrix(transpose).send_row) for rank in range(4)]
        assert sum(halos) == quality[f"volume_{direction}total"]
        assert max(halos) == quality[f"receive_volume_{direction}max"]
        assert max(sends) == quality[f"volume_{direction}max"]
    assert shards.quality == quality


@pytest.mark.usefixtures("small_lanes")
@pytest.mark.parametrize("tasks", [4, 16, *(pytest.param(few, marks=pytest.mark.long) for few in (0, 9))])
def test_a_stage_stopped_anywhere_resumes_to_the_same_bytes(catalog: Catalog, tasks: int) -> None:
    adjacency = random_adjacency(40, 200, 0, symmetric=False)
    part = random_parts(40, 5, 1)
    digests = []
    for name in ("whole", "stopped"):
        dataset = catalog.create(name)
        graph = store_graph(dataset, adjacency, symmetric=False)
        store_vertices(dataset, np.ones((40, 2)), None, None)
        partition = store_partition(dataset, graph, part, 5)
        if name == "stopped":
            with pytest.raises(StoppedError):
                shard_rows(dataset, partition, StoppingCluster(tasks))
        digests.append(shard_rows(dataset, partition, HERE).artifact.digest)
    assert digests[0] == digests[1]


@pytest.mark.usefixtures("small_lanes")
@pytest.mark.parametrize("reorder", ["none", "degree"])
def test_merging_routed_files_and_stopping_on_the_way_change_no_byte(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, reorder: str
) -> None:
    adjacency, part = random_adjacency(300, 3000, 0, symmetric=False), random_parts(300, 7, 1)
    made = []
    for name in ("plain", "merged"):
        dataset = catalog.create(name)
        graph = store_graph(dataset, adjacency, symmetric=False, num_blocks=12)
        store_vertices(dataset, np.random.default_rng(1).normal(size=(300, 2)), np.arange(300) % 4, None)
        partition = store_partition(dataset, graph, part, 7)
        if name == "merged":
            # Two levels: twelve files of each matrix become at most three for each rank.
            monkeypatch.setattr(merge_levels, "FEW_SOURCES", 3)
            monkeypatch.setattr(merge_levels, "SOURCE_BYTES", 1 << 30)
            shuffle = row_shuffle("forward", 7, 300, weighted=False)
            assert len(ShufflePlan.stated(shuffle, 12, 1000, 0).levels) == 3
            for _ in range(6):
                with pytest.raises(StoppedError):
                    shard_rows(dataset, partition, StoppingCluster(11), reorder=reorder)
        made.append(shard_rows(dataset, partition, HERE, reorder=reorder).artifact)
    assert made[0].digest == made[1].digest
    made[1].verify()


@pytest.mark.parametrize("limit", [1 << 20, 150])
def test_rows_of_many_blocks_are_read_in_segments_of_about_one_size(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    adjacency, part = random_adjacency(300, 3000, 0, symmetric=True), random_parts(300, 4, 1)
    segments, sizes = RoutedRank.segments, list[tuple[int, int]]()

    def noted(rank: RoutedRank, files: OpenFiles, matrix: RoutedMatrix) -> Iterator[RowSegment]:
        for segment in segments(rank, files, matrix):
            sizes.append((len(segment.row), len(segment.indices)))
            yield segment

    made = []
    for num_blocks in (1, 12):
        dataset = catalog.create(f"blocks-{num_blocks}")
        graph = store_graph(dataset, adjacency, symmetric=True, num_blocks=num_blocks)
        partition = store_partition(dataset, graph, part, 4)
        if num_blocks > 1:
            monkeypatch.setattr(row_routed, "SEGMENT_NONZEROS", limit)
            monkeypatch.setattr(RoutedRank, "segments", noted)
        made.append(shard_rows(dataset, partition, HERE).artifact)
    # The rows are read twice: once for the halo, and once to renumber them.
    assert sum(nonzeros for _, nonzeros in sizes) == 2 * graph.nnz
    assert all(rows == 1 or nonzeros <= limit for rows, nonzeros in sizes)
    if limit > graph.nnz:
        assert len(sizes) == 2 * 4
    assert made[0].digest == made[1].digest


def test_a_second_run_finds_the_first(catalog: Catalog) -> None:
    adjacency = random_adjacency(20, 50, 0, symmetric=True)
    dataset = catalog.create("g")
    graph = store_graph(dataset, adjacency, symmetric=True)
    partition = store_partition(dataset, graph, random_parts(20, 2, 1), 2)
    first = shard_rows(dataset, partition, HERE)
    again = shard_rows(dataset, partition, StoppingCluster(0))
    assert again.artifact.key == first.artifact.key
    assert dataset.row_shards(parts=2).artifact.key == first.artifact.key
