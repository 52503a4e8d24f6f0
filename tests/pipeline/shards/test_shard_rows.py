"""Row shards: reassembled they are the matrix, and each rank sends what the receiver's halo expects."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.shards.rows import row_entries
from gnnloom.pipeline.shards.rows.row_entries import RangeRows, RowBatch
from gnnloom.pipeline.shards.rows.row_plan import row_phases
from gnnloom.pipeline.shards.rows.row_routed import ROW_STEPS, RowSteps, row_shuffle
from gnnloom.pipeline.shards.rows.row_shuffles import RowPlaces, range_sizes
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.shards.shard_source import ShardSource, find_transpose
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.tasks.phase import count, total_tasks
from gnnloom.pipeline.tasks.sizes import PartSizes
from gnnloom.storage import CSR, Catalog, Dataset, Graph, Partition, RowShards
from gnnloom.storage.checks.shard_invariants import check_row_shards
from gnnloom.storage.disk.work_folder import BESIDE, Scratch
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.format.artifact import ArtifactWriter
from support.covering import examples, few_of
from support.graphs import random_adjacency, store_graph, store_vertices, write_block
from support.partitions import random_parts, rows_sent, store_partition
from support.scratch import SMALL_LANES, merging, small_chunks
from support.stopping import StoppedError, StoppingCluster, run_in_steps

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


@pytest.mark.parametrize(("symmetric", "parts"), few_of([True, False], [1, 2, 3, 7], together=1))
def test_reassembled_shards_are_the_matrix(catalog: Catalog, parts: int, symmetric: bool) -> None:
    adjacency = random_adjacency(60, 200, parts, symmetric=symmetric, loops=parts != 3)
    dataset = catalog.create("g")
    graph = store_graph(dataset, adjacency, symmetric=symmetric)
    part = random_parts(60, parts, 1)
    shards = shard_rows(dataset, store_partition(dataset, graph, part, parts), HERE)
    check_shards(shards, adjacency, part)
    assert shards.artifact.verify() > 0
    assert ("row/00000/transpose/own/indptr" in shards.artifact) is not symmetric


@settings(max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    small_chunks(monkeypatch, 256)
    rng = np.random.default_rng(0)
    n, parts = 100, 3
    dataset = catalog.create("g")
    graph = store_graph(dataset, random_adjacency(n, 300, 0, symmetric=True), symmetric=True)
    feature, label = rng.random((n, 5)).astype(np.float32), rng.integers(-1, 4, n)
    split = rng.integers(0, 4, n)
    store_vertices(dataset, feature, label, split)
    part = random_parts(n, parts, 1)
    shards = shard_rows(dataset, store_partition(dataset, graph, part, parts), HERE, steps=RowSteps(vertex_chunks=1))
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


#: Bytes of a range and of a batch, and nonzeros that are renumbered at once.
SMALL_SIZES = {
    "segments": (1 << 20, 1 << 20, 7),
    "rows": (1 << 20, 1 << 20, 1),
    "batches": (1 << 20, 300, 40),
    "ranges": (3000, 1 << 20, 1 << 20),
    "everything": (700, 200, 7),
}


def shrink(name: str, scratch: Scratch = BESIDE) -> tuple[Scratch, RowSteps]:
    """Sizes that cut the rows of ranks into ranges, and ranges into batches and segments of few bytes."""
    range_bytes, batch_bytes, nonzeros = SMALL_SIZES[name]
    steps = RowSteps(
        batch_bytes=batch_bytes,
        segment_nonzeros=nonzeros,
        pending_ids=nonzeros,
        joined_bytes=100 * nonzeros,
        listed_columns=nonzeros,
    )
    return replace(scratch, range_bytes=range_bytes), steps


def stored_bytes(shards: RowShards) -> dict[str, bytes]:
    """All stored files except the manifest, which has measurements."""
    folder = shards.artifact.path
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "reorder"), few_of(list(SMALL_SIZES), ["none", "degree"], together=1))
@pytest.mark.parametrize(
    ("symmetric", "parts", "weighted"),
    [
        (False, 3, True),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in ((True, 1, True), (False, 2, False), (True, 5, False))
        ),
    ],
)
def test_ranges_batches_and_segments_of_any_size_change_no_byte(
    catalog: Catalog,
    monkeypatch: pytest.MonkeyPatch,
    symmetric: bool,
    parts: int,
    weighted: bool,
    reorder: str,
    sizes: str,
) -> None:
    # Chunks of a few rows, so that ranges write some and share others.
    small_chunks(monkeypatch, 256)
    adjacency, rng = random_adjacency(90, 700, 2, symmetric=symmetric), np.random.default_rng(3)
    adjacency.data = rng.random(adjacency.nnz)
    # The last rank has no vertex, if there are several.
    part = random_parts(90, max(1, parts - 1), 1)

    def make(name: str, scratch: Scratch, steps: RowSteps = ROW_STEPS) -> RowShards:
        dataset = catalog.create(name)
        graph = store_graph(dataset, adjacency, symmetric=symmetric, weighted=weighted)
        store_vertices(dataset, np.arange(450).reshape(90, 5), np.arange(90) % 4, None)
        partition = store_partition(dataset, graph, part, parts)
        return shard_rows(dataset, partition, InProcessCluster(scratch=scratch), reorder=reorder, steps=steps)

    whole = make("whole", BESIDE)
    small, steps = shrink(sizes)
    cut = make("pieces", small, steps)
    assert cut.artifact.digest == whole.artifact.digest
    assert stored_bytes(cut) == stored_bytes(whole)
    check_row_shards(cut.artifact, int(adjacency.nnz))
    source = ShardSource.of(catalog["pieces"].graph(), catalog["pieces"].vertices(), None)
    is_cut = range_sizes(source, PartSizes.of(catalog["pieces"].partition(parts)), small).are_cut
    assert is_cut is (sizes in {"ranges", "everything"})


#: Parts of consecutive ids, in any order, and one without vertices.
CONSECUTIVE = {"whole": [(0, 60)], "ascending": [(0, 15), (1, 30), (3, 15)], "descending": [(3, 1), (2, 44), (0, 15)]}


@pytest.mark.slow
@pytest.mark.parametrize("parts", ["whole", pytest.param("ascending", marks=pytest.mark.long), "descending"])
def test_columns_of_parts_of_consecutive_ids_are_not_looked_up(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, parts: str
) -> None:
    adjacency = random_adjacency(60, 400, 2, symmetric=False)
    adjacency.data = np.arange(1.0, adjacency.nnz + 1)
    part = np.repeat(*np.array(CONSECUTIVE[parts], np.int32).T)

    def make(name: str, scratch: Scratch = BESIDE, steps: RowSteps = ROW_STEPS) -> RowShards:
        dataset = catalog.create(name)
        graph = store_graph(dataset, adjacency, symmetric=False, weighted=True)
        partition, cluster = store_partition(dataset, graph, part, 4), InProcessCluster(scratch=scratch)
        return shard_rows(dataset, partition, cluster, steps=steps)

    with monkeypatch.context() as looked_up:
        looked_up.setattr(row_entries, "_split", None)
        looked_up.setattr(row_entries, "_select_foreign", None)
        shards = make("alone")
        check_shards(shards, adjacency, part)
        # Rows of a range may come in several batches.
        assert make("ranges", *shrink("everything")).artifact.digest == shards.artifact.digest
    # The same parts, as if their ids were not consecutive.
    monkeypatch.setattr(row_entries.RankColumns, "_consecutive", lambda *_: None)
    assert make("looked-up").artifact.digest == shards.artifact.digest


@pytest.mark.parametrize("swapped", [(14, 15), (0, 59), (15, 44), (20, 50)])
def test_parts_with_a_single_vertex_elsewhere_are_exact(catalog: Catalog, swapped: tuple[int, int]) -> None:
    adjacency = random_adjacency(60, 400, 2, symmetric=True)
    part = np.repeat(np.array([1, 0, 2], np.int32), [15, 30, 15])
    part[[*swapped]] = part[[*reversed(swapped)]]
    dataset = catalog.create("g")
    graph = store_graph(dataset, adjacency, symmetric=True)
    check_shards(shard_rows(dataset, store_partition(dataset, graph, part, 3), HERE), adjacency, part)


def _degree_order(adjacency: Any, part: NDArray[np.int32], rank: int) -> NDArray[np.int64]:
    """The vertices of a rank: the largest degree first, and equal ones by id."""
    vertices = np.flatnonzero(part == rank)
    order: NDArray[np.int64] = np.lexsort((vertices, -np.diff(adjacency.indptr)[vertices]))
    return vertices[order]


@pytest.mark.parametrize(("symmetric", "parts"), few_of([False, True], [3, 1], together=1))
def test_reordered_rows_begin_with_the_largest_degree(
    catalog: Catalog, parts: int, symmetric: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_chunks(monkeypatch, 256)
    adjacency = random_adjacency(80, 400, parts, symmetric=symmetric)
    dataset = catalog.create("g")
    graph = store_graph(dataset, adjacency, symmetric=symmetric, num_blocks=3)
    rng = np.random.default_rng(0)
    feature, label = rng.random((80, 5)).astype(np.float32), rng.integers(-1, 4, 80)
    store_vertices(dataset, feature, label, rng.integers(0, 4, 80))
    part = random_parts(80, parts, 1)
    partition = store_partition(dataset, graph, part, parts)
    shards = shard_rows(dataset, partition, HERE, reorder="degree", steps=RowSteps(moved_bytes=100))
    plain = shard_rows(dataset, partition, HERE)
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
    with pytest.raises(InputError, match="reorder 'size':"):
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


@pytest.mark.slow
@pytest.mark.parametrize("reorder", [pytest.param("none", marks=pytest.mark.long), "degree"])
def test_merging_routed_files_and_stopping_on_the_way_change_no_byte(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, reorder: str
) -> None:
    adjacency, part = random_adjacency(300, 3000, 0, symmetric=False), random_parts(300, 7, 1)
    made, scratch = [], SMALL_LANES
    for name in ("plain", "merged"):
        dataset = catalog.create(name)
        graph = store_graph(dataset, adjacency, symmetric=False, num_blocks=12)
        store_vertices(dataset, np.random.default_rng(1).normal(size=(300, 2)), np.arange(300) % 4, None)
        partition = store_partition(dataset, graph, part, 7)
        if name == "merged":
            # Two levels: twelve files of each matrix become at most three for each rank.
            scratch = merging(3, SMALL_LANES)
            shuffle = row_shuffle("forward", 7, 300, 7, weighted=False)
            assert len(ShufflePlan.stated(shuffle, 12, 1000, 0, scratch).levels) == 3
            for _ in range(6):
                with pytest.raises(StoppedError):
                    shard_rows(dataset, partition, StoppingCluster(11, scratch), reorder=reorder)
        cluster = InProcessCluster(scratch=scratch)
        made.append(shard_rows(dataset, partition, cluster, reorder=reorder).artifact)
    assert made[0].digest == made[1].digest
    made[1].verify()


@pytest.mark.parametrize(("few", "reorder"), few_of([16, 3], ["none", "degree"], together=1))
def test_a_rank_of_many_ranges_stopped_after_every_task_resumes_to_the_same_bytes(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, few: int, reorder: str
) -> None:
    small_chunks(monkeypatch, 256)
    adjacency, part = random_adjacency(60, 400, 0, symmetric=False), random_parts(60, 2, 1)

    def prepare(name: str) -> tuple[Dataset, Partition]:
        dataset = catalog.create(name)
        graph = store_graph(dataset, adjacency, symmetric=False)
        store_vertices(dataset, np.arange(120).reshape(60, 2), None, None)
        return dataset, store_partition(dataset, graph, part, 2)

    scratch = Scratch(sources=few)
    whole = shard_rows(*prepare("whole"), InProcessCluster(scratch=scratch), reorder=reorder)
    scratch, steps = shrink("ranges", scratch)
    dataset, partition = prepare("stopped")
    graph = dataset.graph()
    source = ShardSource.of(graph, dataset.vertices(), find_transpose(dataset, graph))
    places = RowPlaces(ArtifactWriter(Path(), "shards", "", scratch=scratch), steps=steps)
    planned = count(row_phases(source, PartSizes.of(partition), places, reorder))
    stopped, ran = run_in_steps(
        lambda cluster: shard_rows(dataset, partition, cluster, reorder=reorder, steps=steps), 1, scratch=scratch
    )
    # Each task once, as planned.
    assert len(ran) == len(set(ran)) == total_tasks(planned)
    names = {"find halos", "shard", "write rows", "join rows", "send lists"}
    assert names <= {phase.phase for phase in planned}
    assert stored_bytes(stopped) == stored_bytes(whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "both"),
    [
        ("write_range", False),
        *(
            pytest.param(each, True, marks=pytest.mark.long)
            for each in ("write_range", "find_halo", "shard_rank", "join_ranges")
        ),
    ],
)
def test_only_what_is_lost_of_a_rank_of_many_ranges_is_made_again(catalog: Catalog, function: str, both: bool) -> None:
    """Every temporary file that was written by then is lost or damaged, one in each run; in the long tests, both."""
    scratch, steps = shrink("ranges")
    cluster = InProcessCluster(scratch=scratch)
    adjacency, part = random_adjacency(60, 400, 0, symmetric=True), random_parts(60, 2, 1)
    dataset = catalog.create("whole")
    graph = store_graph(dataset, adjacency, symmetric=True)
    partition = store_partition(dataset, graph, part, 2)
    whole = stored_bytes(shard_rows(dataset, partition, cluster, reorder="degree", steps=steps))

    class StopAfter(StoppingCluster):
        def map(self, each: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
            yield from super().map(each, items)
            if each.__name__ == function:
                raise StoppedError

    stopped = catalog.create("stopped")
    graph = store_graph(stopped, adjacency, symmetric=True)
    partition = store_partition(stopped, graph, part, 2)
    with pytest.raises(StoppedError):
        shard_rows(stopped, partition, StopAfter(None, scratch), reorder="degree", steps=steps)
    for number in (number for number in range(40) if both or number % 2 == number // 2 % 2):
        dataset = Dataset(shutil.copytree(stopped.path, stopped.path.with_name(f"lost-{number}")))
        partition = dataset.partition(2)
        (work,) = dataset.path.glob("shards/*/.work")
        folders = [work / name for name in ("shuffle", "halo", "numbers")]
        files = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file() and path.suffix == "")
        if number >= 2 * len(files):
            break
        file = files[number // 2]
        if number % 2 or not file.stat().st_size:
            file.unlink()
        else:
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 1
            file.write_bytes(content)
        assert stored_bytes(shard_rows(dataset, partition, cluster, reorder="degree", steps=steps)) == whole
    assert number > 10


@pytest.mark.slow
@pytest.mark.parametrize("reorder", [pytest.param("none", marks=pytest.mark.long), "degree"])
def test_ranges_have_about_equal_shares_and_batches_their_limit(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, reorder: str
) -> None:
    scratch, steps = shrink("everything")
    adjacency, part = random_adjacency(300, 3000, 0, symmetric=True), random_parts(300, 3, 1)
    dataset = catalog.create("g")
    graph = store_graph(dataset, adjacency, symmetric=True)
    partition = store_partition(dataset, graph, part, 3)
    batches, sizes, most = RangeRows.batches, list[tuple[int, int]](), int(np.diff(adjacency.indptr).max())

    def noted(rows: RangeRows) -> Iterator[RowBatch]:
        sizes.append((len(rows), rows.num_nonzeros))
        for batch in batches(rows):
            assert len(batch.length) == 1 or len(batch.indices) <= 200 // 4
            yield batch

    monkeypatch.setattr(RangeRows, "batches", noted)
    shard_rows(dataset, partition, InProcessCluster(scratch=scratch), reorder=reorder, steps=steps)
    ranges = range_sizes(ShardSource.of(graph, None, None), PartSizes.of(partition), scratch)
    # The rows are read twice: once for the halo, and once to renumber them.
    assert len(sizes) == 2 * ranges.num_positions > 2 * 3 * 10
    assert sum(nonzeros for _, nonzeros in sizes) == 2 * graph.nnz
    for rows, nonzeros in sizes:
        assert 64 * rows + 4 * nonzeros <= 700 + 64 + 4 * most


def test_a_second_run_finds_the_first(catalog: Catalog) -> None:
    adjacency = random_adjacency(20, 50, 0, symmetric=True)
    dataset = catalog.create("g")
    graph = store_graph(dataset, adjacency, symmetric=True)
    partition = store_partition(dataset, graph, random_parts(20, 2, 1), 2)
    first = shard_rows(dataset, partition, HERE)
    again = shard_rows(dataset, partition, StoppingCluster(0))
    assert again.artifact.key == first.artifact.key
    assert dataset.row_shards(parts=2).artifact.key == first.artifact.key
