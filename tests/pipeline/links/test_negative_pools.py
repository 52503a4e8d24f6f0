"""Pools of negatives are no edges, each equally likely, and the same for any number of workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gnnloom.pipeline.links.given.given_stage import GivenLinks, store_links
from gnnloom.pipeline.links.negative_pools import Pool, PoolPlan
from gnnloom.pipeline.links.options import DrawOptions, FileOptions
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.pipeline.tasks.cluster import InProcessCluster, ThreadedCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.random_numbers import stream_key
from support.chi_squared import chance_of_counts
from support.graphs import random_adjacency, store_graph
from support.links import mixed, pairs_of
from support.scratch import small_chunks
from support.small_stages import SMALL_FILES, make_small
from support.stopping import run_in_steps, workers_and_tasks

_GOLDEN = 0x9E3779B97F4A7C15


def store(catalog: Catalog, adjacency: Any, *, symmetric: bool, weighted: bool = False) -> Dataset:
    dataset = catalog.create("web")
    store_graph(dataset, adjacency, symmetric=symmetric, weighted=weighted, num_blocks=3)
    return dataset


def some_graph(*, symmetric: bool, weighted: bool = False, loops: bool = True, seed: int = 1) -> Any:
    """A graph of 90 vertices; without ``loops``, a third of the vertices have one."""
    dense = random_adjacency(90, 500, seed, symmetric=symmetric).toarray() != 0
    if not loops:
        np.fill_diagonal(dense, np.arange(90) % 3 == 0)
    # A row that is full but for one vertex, one without entries, and one with all.
    dense[:, 40] = dense[40] = True
    dense[41] = False
    if symmetric:
        dense[:, 41] = False
    dense[60] = True
    dense[40, 7] = False
    if symmetric:
        dense[:, 60] = True
        dense[7, 40] = False
    values = np.where(dense, 1.5 if weighted else 1.0, 0.0)
    return scipy.sparse.csr_array(values.astype(np.float32))


def non_edges(adjacency: Any) -> np.ndarray:
    """(W, 2) all pairs that are no edges, by target and source."""
    dense = adjacency.toarray() != 0
    np.fill_diagonal(dense, val=True)
    target, source = np.nonzero(~dense)
    return np.stack([source, target], 1)


def expected_pool(adjacency: Any, size: int, seed: int, split: str) -> np.ndarray:
    """A pool as Python's integers draw it."""
    pairs, key = non_edges(adjacency), int(stream_key(seed, f"links/pool/{split}"))
    total = len(pairs)
    numbers = [(k * total + (mixed(key + k * _GOLDEN) * total >> 64)) // size for k in range(size)]
    return pairs[numbers]


@pytest.mark.parametrize(
    ("symmetric", "weighted", "loops", "negatives"),
    [
        (True, False, True, 1),
        (False, False, True, 30),
        (True, True, False, 30),
        (False, True, False, 1),
        pytest.param(True, False, True, 30, marks=pytest.mark.long),
        pytest.param(False, False, True, 1, marks=pytest.mark.long),
        pytest.param(True, True, False, 1, marks=pytest.mark.long),
        pytest.param(False, True, False, 30, marks=pytest.mark.long),
    ],
)
def test_pools_are_no_edges_and_those_of_python(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, symmetric: bool, weighted: bool, loops: bool, negatives: int
) -> None:
    small_chunks(monkeypatch, 1000)
    adjacency = some_graph(symmetric=symmetric, weighted=weighted, loops=loops)
    dataset = store(catalog, adjacency, symmetric=symmetric, weighted=weighted)
    options = DrawOptions(negatives=negatives, seed=3)
    links = draw_links(
        dataset, dataset.graph(), options, InProcessCluster(scratch=Scratch(range_rows=13, step_entries=128))
    )
    dense = adjacency.toarray() != 0
    for split in ("valid", "test"):
        source, target = links.pool(split).T
        assert links.num_pooled(split) == len(source) == negatives * links.num_pairs[split]
        assert links.artifact.facts["num_pooled"][split] == len(source)
        assert not dense[target, source].any()
        assert not (symmetric and dense[source, target].any())
        assert (source != target).all()
        np.testing.assert_array_equal(links.pool(split), expected_pool(adjacency, len(source), 3, split))
    assert links.artifact.facts["non_edges"] == len(non_edges(adjacency))
    check_artifact(dataset, links.artifact)


@pytest.mark.parametrize("negatives", [1, 20])
def test_every_pair_that_is_no_edge_is_equally_likely(catalog: Catalog, negatives: int) -> None:
    adjacency = random_adjacency(12, 30, 2, symmetric=False)
    pairs = non_edges(adjacency)
    dataset = store(catalog, adjacency, symmetric=False)
    graph = dataset.graph()
    counts, rounds, size = np.zeros((12, 12)), 3000, 3 * negatives
    for seed in range(rounds):
        pool = Pool("test", int(stream_key(seed, "links/pool/test")), size, len(pairs))
        for source, target in drawn_in_memory(pool, graph, adjacency):
            counts[target, source] += 1
    found = counts[pairs[:, 1], pairs[:, 0]]
    assert found.sum() == counts.sum() == rounds * size
    # Pairs of one pool are from different parts, so the counts differ less than those of independent draws.
    assert chance_of_counts(found) > 0.01
    assert found.std() > 0


def drawn_in_memory(pool: Pool, graph: Any, adjacency: Any) -> list[tuple[int, int]]:
    """A pool, by the kernel, of a graph of one range of rows."""
    from gnnloom.pipeline.links import negative_pools

    matrix = scipy.sparse.csr_array(adjacency)
    matrix.sort_indices()
    cursor = negative_pools._cursor(0, range(pool.num_pairs), has_loops=True)
    source, target = np.empty((2, pool.num_pairs + 1), np.int64)
    count = negative_pools._draw(
        cursor,
        np.uint64(pool.stream),
        pool.num_pairs,
        pool.non_edges,
        0,
        matrix.indptr.astype(np.int64),
        0,
        matrix.indices.astype(np.int32),
        graph.num_vertices,
        True,
        source,
        target,
    )
    assert count == pool.num_pairs
    return list(zip(source[:count].tolist(), target[:count].tolist(), strict=True))


def test_ranges_of_blocks_are_exact_where_numbers_need_64_bits() -> None:
    # About as many vertices and pairs as a pool may have.
    total, size = 3_037_000_499 * 3_037_000_498, (1 << 32) - 5
    pool = Pool("test", int(stream_key(1, "x")), size, total)
    rng = np.random.default_rng(1)

    def number(k: int) -> int:
        return (k * total + (mixed(pool.stream + k * _GOLDEN) * total >> 64)) // size

    for k in [0, 1, size - 2, size - 1, *rng.integers(0, size, 200).tolist()]:
        found = number(k)
        assert (pool.below(found), pool.below(found + 1)) == (k, k + 1)
    assert (pool.below(0), pool.below(total)) == (0, size)


def test_a_graph_with_all_edges_has_no_pool_and_says_so(catalog: Catalog) -> None:
    dataset = store(catalog, scipy.sparse.csr_array(np.ones((30, 30))), symmetric=True)
    with pytest.raises(InputError, match=r"30.*--negatives"):
        draw_links(dataset, dataset.graph(), DrawOptions(), InProcessCluster())
    assert dataset.artifacts("links") == []
    links = draw_links(dataset, dataset.graph(), DrawOptions(negatives=0), InProcessCluster())
    assert (links.num_pooled("valid"), links.num_pooled("test")) == (0, 0)


def test_two_non_edges_are_drawn_as_often_as_needed(catalog: Catalog) -> None:
    dense = np.ones((30, 30))
    dense[4, 5] = dense[29, 0] = 0
    dataset = store(catalog, scipy.sparse.csr_array(dense), symmetric=False)
    links = draw_links(dataset, dataset.graph(), DrawOptions(), InProcessCluster())
    pool = links.pool("test")
    half = len(pool) // 2
    # Source and target: the entry (4, 5) is the edge 5 -> 4.
    assert pool[:half].tolist() == [[5, 4]] * half
    assert pool[len(pool) - half :].tolist() == [[0, 29]] * half


@pytest.mark.parametrize("change", [{"negatives": 1 << 40}, {}])
def test_pools_beyond_the_limits_are_refused(change: dict[str, int]) -> None:
    from gnnloom.pipeline.tasks.sizes import GraphSizes
    from gnnloom.storage.format.artifact import ArtifactWriter

    n = 1000 if change else 1 << 32
    sizes = GraphSizes.even(n, 5 * n, symmetric=False, weighted=False, num_blocks=2, stored_bytes=0)
    where = ArtifactWriter(Path(), "", ""), Path(), sizes, sizes.block_rows
    with pytest.raises(InputError, match=r"4,294,967,296 pairs .*3,037,000,499 vertices"):
        PoolPlan.of(*where, {"valid": 5, "test": 6}, change.get("negatives", 1), 0)


@pytest.mark.slow
@workers_and_tasks
@pytest.mark.parametrize("symmetric", [False, pytest.param(True, marks=pytest.mark.long)])
def test_pairs_from_files_get_pools_where_they_have_no_negatives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, tasks: int, symmetric: bool
) -> None:
    make_small(monkeypatch.setattr)
    adjacency = some_graph(symmetric=symmetric, weighted=False, loops=True)
    pairs = pairs_of(adjacency, symmetric=symmetric)
    absent = pairs_of(adjacency.toarray() == 0, symmetric=symmetric)
    files = {"valid": pairs[:20], "test": np.concatenate([pairs[20:60], absent[:3]]), "valid_negatives": absent[5:9]}
    for name, content in files.items():
        np.save(tmp_path / f"{name}.npy", content)
    paths: dict[str, Any] = {name: str(tmp_path / f"{name}.npy") for name in files}
    options = FileOptions(negatives=3, seed=8, **paths)

    def stored_on(name: str, cluster: Any) -> Links:
        catalog = Catalog(tmp_path / name)
        dataset = catalog["web"] if "web" in catalog else store(catalog, adjacency, symmetric=symmetric)
        (ingested,) = dataset.ingested_graphs()
        return store_links(dataset, dataset.graph(ingested.key), GivenLinks.of(options), cluster)

    links = stored_on("one", InProcessCluster(scratch=SMALL_FILES))
    np.testing.assert_array_equal(links.pool("valid"), absent[5:9])
    pool = links.pool("test")
    np.testing.assert_array_equal(pool, expected_pool(adjacency, 3 * 43, 8, "test"))
    facts = links.artifact.facts
    assert (facts["num_pooled"], facts["non_edges"]) == ({"test": len(pool)}, len(non_edges(adjacency)))
    # Pairs for testing that are no edges can be drawn, which is reported.
    drawn = np.sort(pool, axis=1) if symmetric else pool
    both = (drawn[:, None] == absent[None, :3]).all(2).any(1)
    assert facts["edges"]["test/pool"] == both.sum()
    expected = links.artifact.digest
    assert stored_on("workers", ThreadedCluster(workers, 1 << 30, SMALL_FILES)).artifact.digest == expected
    found, ran = run_in_steps(lambda cluster: stored_on("tasks", cluster).artifact.digest, tasks, scratch=SMALL_FILES)
    assert found == expected
    # Nothing runs twice; a directed graph without held-out edges and its transpose both have degrees.
    assert len(ran) == len(set(ran)) + (not symmetric)
    # Options of negatives change nothing where all are given.
    paths["test_negatives"] = paths["valid_negatives"]
    given = [GivenLinks.of(FileOptions(negatives=negatives, **paths)) for negatives in (0, 1)]
    assert given[0].parameters == given[1].parameters
    classes = GivenLinks(lists=given[0].lists[:2], values="class", negatives=1)
    assert classes.pooled_splits == []


def test_other_seeds_and_splits_have_other_pools(catalog: Catalog) -> None:
    dataset = store(catalog, random_adjacency(200, 900, 5, symmetric=True), symmetric=True)
    (ingested,) = dataset.ingested_graphs()

    def pools(seed: int) -> tuple[Links, np.ndarray]:
        options = DrawOptions(seed=seed, valid=0.1, test=0.1)
        links = draw_links(dataset, dataset.graph(ingested.key), options, InProcessCluster())
        return links, links.pool("test")

    links, pool = pools(0)
    assert not np.array_equal(pool, links.pool("valid"))
    assert not np.array_equal(pool, pools(1)[1])
