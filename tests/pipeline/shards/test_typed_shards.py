"""Row shards of graphs with types: a matrix per relation on one halo, columns of edges, and data of each type."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.pipeline.links.relation.stage import draw_relation_links
from gnnloom.pipeline.matrix_sort.reverses import reverse_relations
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.shards.rows.row_plan import row_phases
from gnnloom.pipeline.shards.rows.row_routed import RowSteps
from gnnloom.pipeline.shards.rows.row_shuffles import RowPlaces
from gnnloom.pipeline.shards.rows.typed_stage import replicating_spec, shard_typed_rows, typed_source
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.tasks.phase import count
from gnnloom.pipeline.tasks.sizes import PartSizes
from gnnloom.storage import Catalog, Dataset, Graph
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.errors import CorruptError, InputError
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.shards.typed_row_shards import TypedRowShards
from support.covering import examples
from support.damage import replace_array
from support.scratch import small_chunks
from support.stopping import run_in_steps
from support.typed_dense import check_typed_shards, ingest_kept, ingest_shop, typed_problems
from support.typed_tables import TypedProblem

HERE = InProcessCluster()
MANY_BLOCKS = Scratch(block_entries=60)
SMALL_STEPS = RowSteps(vertex_chunks=1, routed_bytes=700, batch_bytes=300, segment_nonzeros=11, moved_bytes=64)


def _shard(dataset: Dataset, parts: int, *, reverse: bool, replicate: tuple[str, ...] = ()) -> TypedRowShards:
    graph = dataset.typed_graph()
    options = PartitionOptions(parts, "random", reverse=reverse, replicate=replicate)
    partition = partition_graph(dataset, graph, options, HERE)
    shards = shard_typed_rows(dataset, partition, HERE)
    check_typed_shards(shards, graph, partition.part(), dataset.vertices_of_types(graph.artifact.key))
    assert sum(len(shards.shard(rank).halo_vertex()) for rank in range(parts)) == partition.quality["km1"]
    return shards


@pytest.fixture
def in_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many chunks."""
    small_chunks(monkeypatch, 256)


@pytest.mark.parametrize(("parts", "reverse"), [(1, True), (3, False), (4, True)])
def test_shards_have_the_edges_columns_and_data_of_the_graph(
    catalog: Catalog, tmp_path: Path, parts: int, reverse: bool
) -> None:
    dataset = ingest_shop(catalog.root, tmp_path / "tables")
    shards = _shard(dataset, parts, reverse=reverse)
    assert [each.name for each in shards.relations] == ["at", "knows", "pays"] + (
        ["rev_at", "rev_knows", "rev_pays"] if reverse else []
    )
    assert [each.problem for each in dataset.verify() if each.problem] == []
    with pytest.raises(InputError, match="typed_row_shards"):
        dataset.row_shards()
    dataset.export(tmp_path / "shop.tar.zst")
    moved = catalog.import_dataset(tmp_path / "shop.tar.zst", "moved")
    assert moved.typed_row_shards(parts).artifact.digest == shards.artifact.digest


_TYPES = st.sets(st.sampled_from(["alone", "country", "gone", "item", "user"])).map(lambda names: tuple(sorted(names)))


@settings(max_examples=examples(5), deadline=None)
@given(problem=typed_problems(), parts=st.sampled_from([1, 2, 3, 4, 7]), reverse=st.booleans(), replicate=_TYPES)
def test_random_graphs(
    tmp_path_factory: pytest.TempPathFactory,
    problem: TypedProblem,
    parts: int,
    reverse: bool,
    replicate: tuple[str, ...],
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    dataset = Catalog(folder / "catalog").create("g")
    ingest_kept(problem, dataset, folder)
    _shard(dataset, parts, reverse=reverse, replicate=replicate)
    assert [each.problem for each in dataset.verify() if each.problem] == []


@pytest.mark.parametrize("replicate", [("country",), ("shop", "country"), ("shop", "user", "country")])
def test_rows_of_replicated_types_are_held_by_every_rank(
    catalog: Catalog, tmp_path: Path, replicate: tuple[str, ...]
) -> None:
    dataset = ingest_shop(catalog.root, tmp_path / "tables")
    shards = _shard(dataset, 3, reverse=True, replicate=replicate)
    assert shards.replicated == tuple(sorted(replicate))
    assert shards.quality["replicated_rows"] == sum(shards.type(name).count for name in replicate)
    dataset.export(tmp_path / "shop.tar.zst")
    moved = catalog.import_dataset(tmp_path / "shop.tar.zst", "moved")
    assert moved.typed_row_shards(3).artifact.digest == shards.artifact.digest
    # A rank that owns another vertex than the shards say is found.
    changed = replace_array(shards.artifact, "replicated/country/owner", lambda owner: (owner + 1) % 3)
    with pytest.raises(CorruptError, match="replicated/country/owner"):
        check_artifact(dataset, changed)


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["pays", "knows"])
def test_shards_of_a_graph_without_held_out_edges_have_the_columns_of_the_others(
    catalog: Catalog, tmp_path: Path, relation: str
) -> None:
    dataset = ingest_shop(catalog.root, tmp_path / "tables")
    whole = dataset.typed_graph()
    links = draw_relation_links(dataset, whole.relation(relation), DrawOptions(relation=relation, test=0.3), HERE)
    graph = dataset.typed_graph(links.message_graph)
    assert graph.relation(relation).nnz < whole.relation(relation).nnz
    partition = partition_graph(dataset, graph, PartitionOptions(3, "random", reverse=True), HERE)
    shards = shard_typed_rows(dataset, partition, HERE)
    check_typed_shards(shards, graph, partition.part(), dataset.vertices_of_types(graph.artifact.key))
    assert [each.problem for each in dataset.verify() if each.problem] == []


@pytest.mark.parametrize(
    ("reverse", "replicate"), [(False, ()), (True, ("shop",)), pytest.param(True, (), marks=pytest.mark.slow)]
)
def test_bytes_do_not_depend_on_pieces_or_interruptions(
    catalog: Catalog, tmp_path: Path, request: pytest.FixtureRequest, reverse: bool, replicate: tuple[str, ...]
) -> None:
    """Of the same graph: whole, and in pieces of which every third task is the last one of a run."""
    request.getfixturevalue("in_many_pieces")
    dataset = ingest_shop(catalog.root, tmp_path / "tables", users=90, scratch=MANY_BLOCKS)
    graph = dataset.typed_graph()
    options = PartitionOptions(3, "random", reverse=reverse, replicate=replicate)
    cluster = InProcessCluster(scratch=MANY_BLOCKS)
    partition = partition_graph(dataset, graph, options, cluster)
    scratch = replace(MANY_BLOCKS, range_bytes=4000)
    pieces, ran = run_in_steps(
        lambda cluster: shard_typed_rows(dataset, partition, cluster, steps=SMALL_STEPS), 31, scratch=scratch
    )
    functions = [name for name, _ in ran]
    assert functions.count("write_range") > 6
    # The plan from stored sizes has the tasks that ran.
    union = Graph(dataset.find("transpose", **replicating_spec(partition).asked))
    reverses = reverse_relations(dataset, graph, cluster) if reverse else None
    data = dataset.vertices_of_types(graph.artifact.key)
    source = typed_source(graph, reverses, replicating_spec(partition), union, data)
    sizes = PartSizes.of(partition)
    places = RowPlaces(ArtifactWriter(Path(), "shards", "", scratch=scratch), steps=SMALL_STEPS)
    planned = count(row_phases(source, replace(sizes, sent_back=()), places))
    assert sum(each.tasks for each in planned) == len({name for _, name in ran})
    check_typed_shards(pieces, graph, partition.part(), dataset.vertices_of_types(graph.artifact.key))
    assert [each.problem for each in dataset.verify() if each.problem] == []
    digest = pieces.artifact.digest
    dataset.remove_artifact("shards", pieces.artifact.key)
    assert shard_typed_rows(dataset, partition, HERE).artifact.digest == digest
