"""Links drawn from a graph are those that NumPy draws, and the graph without them is SciPy's."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gnnloom.pipeline.links.options import DrawOptions, links_key, message_key
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.errors import BudgetError, InputError, NotFoundError
from gnnloom.storage.faults import VARIABLE, forget_plans
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.random_numbers import stream_key
from support.covering import few_of
from support.graphs import random_adjacency, store_graph, store_vertices
from support.links import mixed, pairs_of
from support.scratch import small_chunks

_GOLDEN = 0x9E3779B97F4A7C15


def key_of(seed: int, source: int, target: int) -> int:
    own = mixed(int(stream_key(seed, "links")) + (source + 1) * _GOLDEN)
    return mixed(own + (target + 1) * _GOLDEN)


def drawn(adjacency: Any, counts: dict[str, int], seed: int, *, symmetric: bool) -> dict[str, np.ndarray]:
    """Pairs of each split, and of the rest, by target and source."""
    pairs = pairs_of(adjacency, symmetric=symmetric)
    order = np.argsort(np.array([key_of(seed, *pair) for pair in pairs.tolist()], np.uint64))
    ends = np.cumsum(list(counts.values()))
    found = {}
    for (name, count), end in zip(counts.items(), ends.tolist(), strict=True):
        chosen = pairs[np.sort(order[end - count : end])]
        found[name] = chosen
    return {**found, "rest": pairs[np.sort(order[int(ends[-1]) :])]}


def without(adjacency: Any, pairs: np.ndarray, *, symmetric: bool) -> Any:
    """A matrix without the entries of pairs, as SciPy subtracts them."""
    source, target = pairs.T
    rows = np.concatenate([target, source]) if symmetric else target
    columns = np.concatenate([source, target]) if symmetric else source
    held = scipy.sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=adjacency.shape)
    kept = scipy.sparse.csr_array(adjacency - adjacency.multiply(held))
    kept.eliminate_zeros()
    kept.sort_indices()
    return kept


def store(catalog: Catalog, *, symmetric: bool, weighted: bool = False, seed: int = 1) -> tuple[Dataset, Any]:
    adjacency = random_adjacency(200, 900, seed, symmetric=symmetric)
    if weighted:
        rng = np.random.default_rng(seed)
        values = scipy.sparse.csr_array(
            (rng.uniform(0.5, 2, adjacency.nnz).astype(np.float32), adjacency.indices, adjacency.indptr),
            shape=adjacency.shape,
        )
        adjacency = values.maximum(values.T) if symmetric else values
    dataset = catalog.create("web")
    store_graph(dataset, adjacency, symmetric=symmetric, weighted=weighted, num_blocks=3)
    return dataset, adjacency


def draw(dataset: Dataset, cluster: Any = None, **options: Any) -> Links:
    return draw_links(dataset, dataset.graph(), DrawOptions(**options), cluster or InProcessCluster())


@pytest.mark.parametrize(
    ("symmetric", "weighted", "disjoint"), few_of([False, True], [False, True], [0.0, 0.3], together=2)
)
def test_pairs_and_the_message_graph_are_those_of_numpy(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, symmetric: bool, weighted: bool, disjoint: float
) -> None:
    small_chunks(monkeypatch, 500)
    dataset, adjacency = store(catalog, symmetric=symmetric, weighted=weighted)
    links = draw(dataset, valid=0.05, test=0.1, disjoint=disjoint, seed=4)
    num_edges = len(pairs_of(adjacency, symmetric=symmetric))
    counts = {"test": num_edges // 10, "valid": num_edges // 20}
    if disjoint:
        counts["train"] = int(3 * (num_edges - sum(counts.values())) / 10)
    expected = drawn(adjacency, counts, 4, symmetric=symmetric)
    held_out = np.concatenate([expected[split] for split in counts])
    if not disjoint:
        expected["train"] = expected["rest"]
    for split in ("train", "valid", "test"):
        np.testing.assert_array_equal(links.pair(split), expected[split])
        assert links.num_pairs[split] == len(expected[split]) > 0

    kept = without(adjacency, held_out, symmetric=symmetric)
    message = dataset.graph(links.message_graph)
    found = message.to_scipy()
    np.testing.assert_array_equal(found.indptr, kept.indptr)
    np.testing.assert_array_equal(found.indices, kept.indices)
    np.testing.assert_array_equal(found.data, kept.data.astype(np.float32))
    np.testing.assert_array_equal(message.degree(), np.diff(kept.indptr))
    assert (message.symmetric, message.weighted, message.nnz) == (symmetric, weighted, kept.nnz)
    assert message.block_rows == dataset.graph(links.graph).block_rows
    source, target = expected["train"].T
    np.testing.assert_array_equal(links.weight(), kept[target, source].astype(links.weight().dtype))
    assert links.weight().dtype == (np.float32 if weighted else np.uint8)
    assert (links.weight() == 0).all() == bool(disjoint)
    for info in dataset.artifacts():
        check_artifact(dataset, Artifact(info.path))


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 5))])
def test_thresholds_are_exact_whatever_the_rounds(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    # With 4 bits a round, hundreds of keys share the bits of the first, so that several rounds are needed.
    for name, value in (("ROUND_BITS", 4), ("_CELLS", 16)):
        monkeypatch.setattr(f"gnnloom.pipeline.links.thresholds.{name}", value)
    dataset, adjacency = store(catalog, symmetric=False, seed=seed)
    links = draw(dataset, valid=0.1, test=0.1, disjoint=0.5, seed=seed)
    num_edges = len(pairs_of(adjacency, symmetric=False))
    held = 2 * (num_edges // 10)
    counts = {"test": held // 2, "valid": held // 2, "train": (num_edges - held) // 2}
    expected = drawn(adjacency, counts, seed, symmetric=False)
    for split in counts:
        np.testing.assert_array_equal(links.pair(split), expected[split])


def content(dataset: Dataset) -> dict[str, str]:
    return {f"{info.kind}/{info.key}": Artifact(info.path).digest for info in dataset.artifacts()}


def test_asking_twice_makes_nothing_new_and_the_keys_are_known_before(catalog: Catalog) -> None:
    dataset, _ = store(catalog, symmetric=True)
    graph = dataset.graph()
    first = draw(dataset, seed=3)
    own = links_key(graph.artifact.key, DrawOptions(seed=3))
    assert (first.artifact.key, first.message_graph) == (own, message_key(graph.artifact.key, own))
    before = content(dataset)
    assert draw_links(dataset, graph, DrawOptions(seed=3), InProcessCluster()).artifact.manifest == (
        first.artifact.manifest
    )
    assert content(dataset) == before
    # A graph that was removed is made again, of the stored pairs.
    dataset_before = dict(before)
    for path in sorted((dataset.path / "graph" / first.message_graph).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    draw_links(dataset, graph, DrawOptions(seed=3), InProcessCluster())
    assert content(dataset) == dataset_before
    other = draw_links(dataset, graph, DrawOptions(seed=4), InProcessCluster())
    assert other.artifact.key != own
    assert not np.array_equal(other.pair("test"), first.pair("test"))
    assert dataset.links(seed=4).artifact.key == other.artifact.key


def test_a_message_graph_that_is_left_alone_is_chosen_only_by_its_key(catalog: Catalog) -> None:
    dataset = catalog.create("web")
    graph = store_graph(dataset, random_adjacency(40, 150, 1, symmetric=True), symmetric=True)
    links = draw_links(dataset, graph, DrawOptions(valid=0.1), InProcessCluster())
    assert dataset.graph().artifact.key == graph.artifact.key
    shutil.rmtree(graph.artifact.path)
    with pytest.raises(
        NotFoundError, match=f"no graph that was made from a source; .*`--graph KEY`: .*{links.message_graph}"
    ):
        dataset.graph()
    assert dataset.graph(links.message_graph).artifact.key == links.message_graph


def test_vertex_data_of_the_graph_are_those_of_the_message_graph(catalog: Catalog) -> None:
    dataset, _ = store(catalog, symmetric=True)
    graph = dataset.graph().artifact.key
    vertices = store_vertices(dataset, np.ones((200, 3)), None, None)
    links = draw(dataset)
    assert dataset.vertices(graph=links.message_graph).artifact.key == vertices.artifact.key
    assert dataset.origin(links.message_graph) == dataset.origin(graph) == graph
    assert [info.key for info in dataset.ingested_graphs()] == [graph]
    # Who names no graph means the whole one.
    assert dataset.graph().artifact.key == graph


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"valid": 0.0}, "valid 0.0: expected more than 0"),
        ({"test": 1.0}, "test 1.0: expected a number from 0 to below 1"),
        ({"valid": 0.5, "test": 0.5}, "expected a sum below 1"),
        ({"disjoint": 1.0}, "disjoint 1.0: expected a number from 0 to below 1"),
        ({"disjoint": -0.1}, "disjoint -0.1: expected a number from 0"),
        ({"seed": -1}, "seed -1: expected at least 0"),
    ],
)
def test_fractions_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DrawOptions(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"valid": 0.01, "test": 0.4}, r"valid 0.01: of 4 edges, this is less than one"),
        ({"valid": 0.4, "test": 0.1}, r"test 0.1: of 4 edges, this is less than one"),
        ({"valid": 0.25, "test": 0.25, "disjoint": 0.4}, r"disjoint 0.4: of 4 edges, this is less than one"),
    ],
)
def test_a_split_without_pairs_is_refused_and_leaves_nothing(
    catalog: Catalog, options: dict[str, Any], message: str
) -> None:
    adjacency = scipy.sparse.csr_array(np.eye(5) + np.diag([1, 1, 1, 1], 1))
    dataset = catalog.create("web")
    graph = store_graph(dataset, adjacency, symmetric=False, num_blocks=2)
    with pytest.raises(InputError, match=message):
        draw_links(dataset, graph, DrawOptions(**options), InProcessCluster())
    assert dataset.artifacts("links") == []
    assert len(dataset.artifacts("graph")) == 1


@pytest.mark.parametrize(
    ("edges", "num_vertices", "disjoint", "message"),
    [
        (0, 1, 0.0, "has 0 edges between different vertices, and these options need 3 or more: one for each of test"),
        (0, 4, 0.0, "has 0 edges .* choose a graph with more edges, or give the pairs in files"),
        (1, 2, 0.0, "has 1 edge between different vertices"),
        (2, 4, 0.0, "has 2 edges .* need 3 or more: one for each of test, valid, and one that stays in the graph"),
        (3, 4, 0.5, "has 3 edges .* need 4 or more: one for each of test, valid, disjoint, and one that stays"),
    ],
)
def test_a_graph_with_too_few_edges_is_named_as_the_cause(
    catalog: Catalog, edges: int, num_vertices: int, disjoint: float, message: str
) -> None:
    # Loops are in the graph and are not drawn.
    adjacency = scipy.sparse.csr_array(
        np.eye(num_vertices) + np.diag([1.0] * edges + [0] * (num_vertices - 1 - edges), 1)
    )
    dataset = catalog.create("web")
    graph = store_graph(dataset, adjacency, symmetric=False)
    with pytest.raises(InputError, match=message):
        draw_links(dataset, graph, DrawOptions(valid=0.4, test=0.4, disjoint=disjoint), InProcessCluster())
    assert dataset.artifacts("links") == []


def test_memory_that_one_vertex_exceeds_is_refused(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnloom.pipeline.links.message_graph.HELD_ENTRIES", 2)
    monkeypatch.setattr("gnnloom.pipeline.links.message_graph._HELD_BYTES", 1 << 28)
    star = np.zeros((60, 60))
    star[0] = 1
    dataset = catalog.create("web")
    graph = store_graph(dataset, scipy.sparse.csr_array(star), symmetric=False, num_blocks=2)
    with pytest.raises(BudgetError, match=r"vertex 0 .*1,024 MiB"):
        draw_links(dataset, graph, DrawOptions(test=0.5), InProcessCluster())
    with pytest.raises(BudgetError, match=r"a task needs .* 448 MiB per worker are allowed"):
        draw_links(dataset, graph, DrawOptions(test=0.5), InProcessCluster(448 << 20))
    # What was refused before it began has left nothing.
    with pytest.raises(BudgetError, match=r"at least 448 MiB are needed"):
        draw_links(dataset, graph, DrawOptions(test=0.4), InProcessCluster(100 << 20))
    assert len(dataset.artifacts("links")) == 1


@pytest.mark.slow
def test_links_never_exist_without_their_graph_whatever_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def graph_of(name: str) -> Dataset:
        return store(Catalog(tmp_path / name), symmetric=True)[0]

    calm = graph_of("calm")
    draw(calm)
    expected, steps = content(calm), 0
    # Every few steps on the file system, beginning with one or another.
    for first in (1, 2):
        wild, nth = graph_of(f"wild {first}"), first
        (ingested,) = wild.ingested_graphs()
        while True:
            monkeypatch.setenv(VARIABLE, f"*:ENOSPC:nth={nth}")
            forget_plans()
            try:
                draw_links(wild, wild.graph(ingested.key), DrawOptions(), InProcessCluster())
                break
            except OSError:
                steps += 1
            finally:
                monkeypatch.delenv(VARIABLE)
                forget_plans()
            complete = [info for info in wild.artifacts() if info.state == "complete"]
            for info in complete:
                if info.kind == "links":
                    assert Links(Artifact(info.path)).message_graph in {other.key for other in complete}
            nth += 3
        assert content(wild) == expected
    assert steps > 20
