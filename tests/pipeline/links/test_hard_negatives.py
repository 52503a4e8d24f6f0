"""Hard negatives are those that plain Python ranks first, for any number of workers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from gnnloom.pipeline.links.baselines import BaselinePlan
from gnnloom.pipeline.links.hard_negatives import RETURN, THRESHOLD, VertexScores, ranks_of
from gnnloom.pipeline.links.hard_stage import draw_hard_negatives, hard_key
from gnnloom.pipeline.links.options import DrawOptions, HardOptions
from gnnloom.pipeline.links.projection import project_hard
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.pipeline.matrix_sort.transpose import transpose_graph
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.matrix.random_numbers import stream_key
from support.covering import few_of
from support.graphs import random_adjacency, store_graph, store_vertices
from support.hard_negatives import allocation, cosines, neighbors_of, pushed, ranked
from support.links import mixed
from support.stopping import StoppingCluster

N, _GOLDEN = 70, 0x9E3779B97F4A7C15


def store(catalog: Catalog, *, symmetric: bool) -> Dataset:
    dataset = catalog.create("web")
    adjacency = random_adjacency(N, 90, 3, symmetric=symmetric)
    store_graph(dataset, adjacency, symmetric=symmetric, num_blocks=2)
    rng = np.random.default_rng(4)
    feature = rng.integers(-1, 2, (N, 6)).astype(np.float32)
    feature[:3] = 0
    store_vertices(dataset, feature, None, None)
    return dataset


def linked(dataset: Dataset, cluster: Any = None) -> Links:
    (ingested,) = dataset.ingested_graphs()
    options = DrawOptions(valid=0.1, test=0.2, seed=2)
    return draw_links(dataset, dataset.graph(ingested.key), options, cluster or InProcessCluster())


def reference(
    dense: np.ndarray,
    message: np.ndarray,
    feature: np.ndarray | None,
    pair: tuple[int, int],
    side: int,
    count: int,
    stream: int,
) -> list[int]:
    kept = pair[side]
    # Targets of edges from the source, or sources of edges to the target.
    edges = dense[:, kept] if side == 0 else dense[kept]
    candidates = [v for v in range(N) if not edges[v] and v not in pair]
    neighbors = neighbors_of(message)
    scores = [allocation(neighbors, kept), pushed(neighbors, kept)]
    if feature is not None:
        scores.append(cosines(feature, feature[kept]))
    ranks = np.sum([ranked([each[v] for v in candidates]) for each in scores], axis=0)
    order = sorted(range(len(candidates)), key=lambda k: (ranks[k], mixed(stream + (candidates[k] + 1) * _GOLDEN)))
    return [candidates[k] for k in order[:count]]


@pytest.mark.slow
@pytest.mark.parametrize(("symmetric", "features"), few_of([False, True], [True, False], together=1))
def test_negatives_are_those_that_python_ranks_first(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, symmetric: bool, features: bool
) -> None:
    monkeypatch.setattr("gnnloom.pipeline.links.hard_stage.TASK_PAIRS", 9)
    dataset = store(catalog, symmetric=symmetric)
    links = linked(dataset)
    options = HardOptions(negatives=13, features=features, seed=8)
    found = draw_hard_negatives(dataset, links, options, InProcessCluster())
    assert found.artifact.key == hard_key(dataset, links, options) != links.artifact.key
    assert (found.message_graph, found.graph) == (links.message_graph, links.graph)
    dense, message = (dataset.graph(key).to_scipy().toarray() != 0 for key in (links.graph, links.message_graph))
    feature = dataset.vertices().feature() if features else None
    for split in ("train", "valid", "test"):
        np.testing.assert_array_equal(found.pair(split), links.pair(split))
    np.testing.assert_array_equal(found.weight(), links.weight())
    for split in ("valid", "test"):
        key = int(stream_key(8, f"links/hard/{split}"))
        assert (found.num_negatives(split), found.num_replaced(split), found.num_pooled(split)) == (7, 6, 0)
        for number, pair in enumerate(links.pair(split).tolist()):
            for side, array in enumerate((found.negative(split), found.negative_source(split))):
                stream = mixed(key + (2 * number + side + 1) * _GOLDEN)
                expected = reference(dense, message, feature, tuple(pair), side, array.shape[1], stream)
                assert array[number].tolist() == expected, (split, pair, side)
        assert found.baseline(f"{split}/negative_source").shape == (links.num_pairs[split], 6, 3)
    for info in dataset.artifacts():
        check_artifact(dataset, dataset.find(info.kind, info.key))


@pytest.mark.slow
@pytest.mark.parametrize(("symmetric", "features"), few_of([False, True], [False, True], together=1))
def test_the_planned_tasks_are_those_that_run(catalog: Catalog, symmetric: bool, features: bool) -> None:
    dataset, cluster = store(catalog, symmetric=symmetric), StoppingCluster()
    links, options = linked(dataset), HardOptions(negatives=6, features=features)
    for info in dataset.artifacts("transpose"):
        dataset.remove_artifact("transpose", info.key)
    before = set((dataset.path / ".mapped").glob("*/*.npy"))
    planned = project_hard(dataset, links, options, 1)
    assert not planned.is_done
    found = draw_hard_negatives(dataset, links, options, cluster)
    assert (planned.key, planned.message_graph) == (found.artifact.key, links.message_graph)
    assert planned.tasks == len(cluster.ran)
    sizes = [math.prod(each.shape) * np.dtype(each.dtype).itemsize for each in found.artifact.records.values()]
    both = (dataset.graph(key) for key in (links.graph, links.message_graph))
    transposed = 0 if symmetric else sum(GraphSizes.of(each).raw_bytes for each in both)
    assert planned.output_bytes == sum(sizes) + transposed
    # Files have headers.
    copies = set((dataset.path / ".mapped").glob("*/*.npy"))
    assert copies > before
    assert planned.copy_bytes >= sum(each.stat().st_size - 128 for each in copies)
    again = project_hard(dataset, links, options, 1)
    assert (again.is_done, again.tasks, again.output_bytes, again.copy_bytes) == (True, 0, 0, 0)


@pytest.mark.parametrize("symmetric", [False, True])
def test_pagerank_is_that_of_the_linear_system(catalog: Catalog, symmetric: bool) -> None:
    dataset = store(catalog, symmetric=symmetric)
    graph = dataset.graph()
    transpose = None if symmetric else transpose_graph(dataset, graph, InProcessCluster()).artifact.path
    with ArtifactWriter.begin(dataset.path, "links", {"x": 1}, {"graph": graph.artifact.key}) as writer:
        plan = BaselinePlan.of(writer, graph.artifact.path, transpose, GraphSizes.of(graph), {})
        plan.prepare(InProcessCluster())
        scores = VertexScores.open(plan.neighbors)
        neighbors = neighbors_of(graph.to_scipy().toarray() != 0)
        degree = np.array([len(each) for each in neighbors])
        walk = np.array([[(end in each) / max(1, len(each)) for end in range(N)] for each in neighbors])
        walk[degree == 0, degree == 0] = 1
        for vertex in range(0, N, 9):
            exact = RETURN * np.linalg.inv(np.eye(N) - (1 - RETURN) * walk)[vertex] if degree[vertex] else None
            if exact is None:
                continue
            _, rank = scores.of(vertex)
            # Andersen, Chung, Lang: at most the threshold for each neighbor is missing.
            assert (rank <= exact + 1e-12).all()
            assert (exact - rank <= THRESHOLD * np.maximum(1, degree)).all()
        writer.discard()


def test_ranks_of_equal_scores_are_equal() -> None:
    assert ranks_of(np.array([0.5, 0, 2, 0.5, -1, 2, 0.1])).tolist() == [3, 6, 1, 3, 6, 1, 5]
    assert ranks_of(np.zeros(3)).tolist() == [1, 1, 1]
    assert ranks_of(np.empty(0)).tolist() == []


def test_too_few_vertices_and_links_with_negatives_are_refused(catalog: Catalog) -> None:
    dataset = store(catalog, symmetric=True)
    links = linked(dataset)
    with pytest.raises(InputError, match=r"70.*--negatives"):
        draw_hard_negatives(dataset, links, HardOptions(negatives=140), InProcessCluster())
    assert len(dataset.artifacts("links")) == 1
    found = draw_hard_negatives(dataset, links, HardOptions(negatives=4), InProcessCluster())
    with pytest.raises(InputError, match=r"pairs without values .*negatives"):
        draw_hard_negatives(dataset, found, HardOptions(), InProcessCluster())
