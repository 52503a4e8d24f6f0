"""Samples of a graph with types are the batches that the loader draws, with the rows of the tables that they read."""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gnnloom
from gnnloom.pipeline.samples.options import SampleOptions, samples_key
from gnnloom.pipeline.samples.projection import project_samples
from gnnloom.pipeline.samples.stage import SampleSizes, find_inputs, sample_phases, write_samples
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.tasks.phase import count
from gnnloom.storage import Dataset
from gnnloom.storage.artifacts.typed.mapped_graph import map_relations, map_reverses
from gnnloom.storage.artifacts.typed.reverses import reverses_of
from gnnloom.storage.artifacts.typed.typed_samples import TypedSamples
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.errors import BudgetError, CorruptError, InputError, NotFoundError
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.sampling.layered import hetero_batch
from gnnloom.storage.sampling.layers.seeds import VertexSeeds
from gnnloom.storage.sampling.layers.typed import TypedNeighborSampler, relation_views
from gnnloom.storage.upkeep.garbage import find_garbage
from support.damage import replace_array
from support.stopping import StoppingCluster
from support.typed_papers import COUNTS, store, tables

OPTIONS: dict[str, Any] = {
    "of_type": "paper",
    "fanout": (4, 3),
    "relation_fanout": ("writes=2:1", "rev_cites=-1"),
    "reverse": True,
    "batch_size": 7,
    "epochs": 2,
    "seed": 5,
    "cache_memory": 300,
}
FANOUTS = {"writes": (2, 1), "rev_cites": (-1, -1)}


@pytest.fixture(scope="module")
def given() -> dict[str, pd.DataFrame]:
    return tables()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, given: dict[str, pd.DataFrame]) -> Dataset:
    return store(tmp_path_factory.mktemp("typed") / "catalog", "papers", given)


@pytest.fixture
def own(tmp_path: Path, dataset: Dataset) -> Dataset:
    """A copy of the dataset that a test may change."""
    shutil.copytree(dataset.path.parent, tmp_path / "catalog")
    for path in (tmp_path / "catalog").glob("*/samples"):
        shutil.rmtree(path)
    return gnnloom.Catalog(tmp_path / "catalog")["papers"]


def sample(dataset: Dataset, cluster: Any = None, **options: Any) -> TypedSamples:
    chosen = SampleOptions(**{**OPTIONS, **options})
    found = write_samples(dataset, dataset.typed_graph(), None, chosen, cluster or InProcessCluster())
    assert isinstance(found, TypedSamples)
    return found


def content(folder: Path) -> dict[str, str]:
    """Digest of every file of an artifact but the manifest, which has times in it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("ranks", [1, 3])
def test_batches_are_those_of_the_sampler_with_rows_of_the_tables(
    dataset: Dataset, given: dict[str, pd.DataFrame], ranks: int
) -> None:
    samples = sample(dataset, ranks=ranks)
    graph = dataset.typed_graph()
    relations = map_relations(graph)
    relations |= map_reverses(
        reverses_of(dataset.find("transpose", made_from={"graph": graph.artifact.key})), relations
    )
    types = [each.name for each in graph.types]
    fanouts = {name: FANOUTS.get(name, (4, 3)) for name in relations}
    sampler = TypedNeighborSampler(types, relation_views(relations, "uniform"), 5, fanouts)
    # What the tables say, by the numbers of vertices.
    table = {name: given[name].set_index("id").loc[graph.original_id(name)] for name in ("author", "paper")}
    paper = table["paper"].reset_index(drop=True)
    seeds = VertexSeeds(np.flatnonzero(paper["split"] == "train"), 7, 5, of_type="paper")
    features = {name: each.filter(regex="^x").to_numpy(np.float32) for name, each in table.items()}
    hot = samples.hot_features(0)
    assert set(hot) == {"author", "paper"}
    assert 0 < sum(each.nbytes for each in hot.values()) <= 300
    assert sum(samples.num_batches) == seeds.num_batches > 3
    for epoch in range(2):
        for rank in range(ranks):
            numbers = range(rank, seeds.num_batches, ranks)
            stored = [
                batch
                for segment in range(samples.num_segments(rank))
                for batch in samples.read_segment(rank, epoch, segment, hot)
            ]
            for number, found in zip(numbers, stored, strict=True):
                own = seeds.begin(epoch)(number).vertices
                expected = hetero_batch(sampler.sample_of(own, epoch, number), relations)
                _check_equal(found.batch, expected)
                for name, feature in features.items():
                    np.testing.assert_array_equal(found.features[name], feature[found.batch.vertices[name]])
                np.testing.assert_array_equal(found.label, paper["y"][own["paper"]])
                _check_writes(found.batch, given, graph)


def _check_equal(found: Any, expected: Any) -> None:
    assert found.num_vertices == expected.num_vertices
    for name, vertices in expected.vertices.items():
        np.testing.assert_array_equal(found.vertices[name], vertices)
    assert list(found.edges) == list(expected.edges)
    for name, edges in expected.edges.items():
        own = found.edges[name]
        assert own.num_entries == edges.num_entries
        assert own.matrix.num_columns == edges.matrix.num_columns
        for mine, other in (
            (own.matrix.indptr, edges.matrix.indptr),
            (own.matrix.indices, edges.matrix.indices),
            (own.edge, edges.edge),
            *((own.columns[column], edges.columns[column]) for column in edges.columns),
        ):
            assert mine.dtype == other.dtype
            np.testing.assert_array_equal(mine, other)
        assert set(own.columns) == set(edges.columns)


def _check_writes(batch: Any, given: dict[str, pd.DataFrame], graph: Any) -> None:
    """Every edge of the relation is a row of its table, with the row's columns."""
    edges = batch.edges["writes"]
    rows = np.repeat(np.arange(edges.matrix.num_rows), np.diff(edges.matrix.indptr))
    ends = batch.vertices["author"][edges.matrix.indices], batch.vertices["paper"][rows]
    author, paper = (graph.original_id(name)[each] for name, each in zip(("author", "paper"), ends, strict=True))
    columns = edges.columns["weight"].astype(int), np.rint(1000 * edges.columns["feature"][:, 0]).astype(int)
    table = given["writes"].assign(share=np.rint(1000 * given["writes"]["share"]).astype(int))
    known = set(table[["a", "p", "weight", "share"]].itertuples(index=False, name=None))
    assert set(zip(author.tolist(), paper.tolist(), *(each.tolist() for each in columns), strict=True)) <= known


def test_the_loader_gives_what_it_would_draw(dataset: Dataset) -> None:
    pytest.importorskip("torch_geometric")
    import torch

    samples = gnnloom.sample(dataset, workers=0, **{**OPTIONS, "seed": 0, "ranks": 2})
    graph = dataset.typed_graph()
    names = [name for each in graph.relations for name in (each.name, f"rev_{each.name}")]
    options: dict[str, Any] = {"of_type": "paper", "batch_size": 7, "reverse": True, "size": 2}
    options["fanout"] = {name: FANOUTS.get(name, (4, 3)) for name in names}
    for rank, drop_last in ((0, False), (1, True)):
        live = gnnloom.loader(dataset, rank=rank, drop_last=drop_last, **options)
        stored = gnnloom.loader(dataset, samples=samples.artifact.key, rank=rank, size=2, drop_last=drop_last)
        for _ in range(2):
            for drawn, read in zip(live, stored, strict=True):
                assert (drawn.node_types, drawn.edge_types) == (read.node_types, read.edge_types)
                for part in (*drawn.node_stores, *drawn.edge_stores):
                    for name, value in part.items():
                        if name == "y":
                            # Only the seeds have labels.
                            assert torch.equal(value[: part["batch_size"]], read["paper"].y)
                        elif isinstance(value, torch.Tensor):
                            assert torch.equal(value, read[part._key][name]), (part._key, name)
                        else:
                            assert value == read[part._key][name]
    with pytest.raises(InputError, match=r"samples for \d+ ranks, but size is 1"):
        gnnloom.loader(dataset, samples=samples.artifact.key)
    with pytest.raises(InputError, match=r"type paper"):
        gnnloom.loader(dataset, samples=samples.artifact.key, size=2, of_type="author")


def test_the_plan_states_the_tasks_that_run_and_what_batches_have_at_most(own: Dataset) -> None:
    cluster, options, graph = StoppingCluster(), SampleOptions(**OPTIONS, ranks=3), own.typed_graph()
    plan = project_samples(own, graph, None, options, 1)
    assert not plan.is_done
    write_samples(own, graph, None, options, cluster)
    samples = own.typed_samples()
    assert samples.artifact.key == plan.key == samples_key(samples.artifact.inputs, options)
    functions = [function for function, _ in cluster.ran if function in {"prepare_rank", "write_segment"}]
    inputs, writer = find_inputs(own, graph, None, options), ArtifactWriter(own.path, "samples", "")
    sizes = SampleSizes.of(inputs)
    counted = count(sample_phases(writer, inputs, sizes, [len(samples.seeds())]))
    assert [phase.tasks for phase in counted] == [functions.count("prepare_rank"), functions.count("write_segment")]
    assert plan.tasks == len(functions)
    records = samples.artifact.records.values()
    assert plan.output_bytes >= sum(math.prod(each.shape) * np.dtype(each.dtype).itemsize for each in records)
    batches = [batch.batch for rank in range(3) for batch in samples.read_segment(rank, 0, 0, samples.hot_features(0))]
    for batch in batches:
        assert all(len(vertices) <= sizes.rows[name] for name, vertices in batch.vertices.items())
        assert all(edges.matrix.nnz <= sizes.nonzeros[name] for name, edges in batch.edges.items())
    # The expected size is near the mean size.
    mean = np.mean([len(batch.vertices["author"]) for batch in batches])
    assert 0.5 * mean < plan.batch_vertices["author"] < 2 * mean
    assert project_samples(own, graph, None, options, 1).is_done


def test_what_does_not_fit_in_memory_is_refused_before_it_is_drawn(dataset: Dataset) -> None:
    with pytest.raises(BudgetError, match="fan-outs"):
        sample(dataset, InProcessCluster(memory=1 << 20), reverse=False, relation_fanout=())


DAMAGE: list[tuple[str, Any, str]] = [
    ("type/paper/vertex", lambda array: array + COUNTS["paper"], "expected 0 to 59"),
    ("type/paper/vertex", lambda array: np.where(np.arange(len(array)) == 1, array[0], array), "twice in a batch"),
    ("type/author/size", lambda array: array + 50, "expected 0 to|expected more"),
    ("type/author/hot", lambda array: np.where(array < 0, 0, array), "one for each packed vertex"),
    ("relation/writes/indices", lambda array: array + 10**6, "outside its block"),
    ("relation/writes/drawn", lambda array: array + 1, "expected more|outside its block|edges in a batch"),
    ("relation/writes/edge", lambda array: array - 1000, "expected 0 to"),
    ("relation/cites/size", lambda array: array[:, ::-1], "edges"),
]


def _always(array: Any) -> Callable[[Any], Any]:
    return lambda _: array


def test_verification_finds_wrong_samples(own: Dataset) -> None:
    artifact, prefix = sample(own).artifact, "rank/00000/epoch/00001/segment/000000"
    check_artifact(own, artifact)
    for name, change, message in DAMAGE:
        sound = artifact.array(f"{prefix}/{name}").read()
        damaged = replace_array(artifact, f"{prefix}/{name}", change)
        with pytest.raises(CorruptError, match=message):
            check_artifact(own, damaged)
        artifact = replace_array(damaged, f"{prefix}/{name}", _always(sound))
    check_artifact(own, artifact)


@pytest.mark.parametrize("kind", ["graph", "vertices", "transpose"])
def test_samples_whose_inputs_are_gone_are_garbage(own: Dataset, tmp_path: Path, kind: str) -> None:
    path = sample(own).artifact.path
    assert path not in [item.path for item in find_garbage(own)]
    keys = {key for name, key in Artifact(path).inputs.items() if name.partition("/")[0] == kind}
    own.path.joinpath(kind, max(keys)).rename(tmp_path / "elsewhere")
    assert path in [item.path for item in find_garbage(own)]


def test_what_cannot_be_sampled_is_refused(dataset: Dataset) -> None:
    graph = dataset.typed_graph()
    refused: list[tuple[str, dict[str, Any]]] = [
        ("of_type", {"of_type": None}),
        ("no label and no split.*--of-type author", {"of_type": "author"}),
        ("paper", {"of_type": "papers"}),
        ("cite=1", {"relation_fanout": ("cite=1",)}),
        ("3 hops", {"relation_fanout": ("cites=1:2:3",)}),
        ("rev_cites", {"reverse": False}),
    ]
    for named, options in refused:
        with pytest.raises((InputError, NotFoundError), match=named):
            project_samples(dataset, graph, None, SampleOptions(**{**OPTIONS, **options}), 1)
    with pytest.raises(InputError, match="partition"):
        gnnloom.sample(dataset, of_type="paper", partition="0123", workers=0)
    with pytest.raises(InputError, match="types"):
        dataset.samples(sample(dataset).artifact.key)
