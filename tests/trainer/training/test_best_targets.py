"""The best targets of vertices have the same bits, and the same order of ties, on any number of ranks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gnnloom.storage import Catalog, Graph
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.memory_map import RecordedArray
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.storage.shards import known_pairs
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.data.owners import RangeOwners
from gnnloom.trainer.links.bilinear import Dot
from gnnloom.trainer.tasks.registry import TASKS
from gnnloom.trainer.training import best_targets
from gnnloom.trainer.training.pair_scores import PairScorer
from support.graphs import random_adjacency, store_graph
from support.link_targets import NUM_VERTICES, made, whole
from support.links import store_links
from support.thread_ranks import on_thread_ranks


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A directed graph in several blocks."""
    dataset = Catalog(tmp_path_factory.mktemp("catalog")).create("web")
    return store_graph(dataset, random_adjacency(NUM_VERTICES, 4000, 1, symmetric=False), symmetric=False, num_blocks=3)


@pytest.fixture(autouse=True)
def many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_targets, "SOURCES_AT_ONCE", 16)
    for name, value in (("_CELLS", 8), ("_ENTRIES", 50), ("_PAIRS", 30)):
        monkeypatch.setattr(known_pairs, name, value)


@pytest.fixture(scope="module")
def links(graph: Graph) -> Links:
    """Pairs that are not edges of the graph, in all splits."""
    dataset, rng = Catalog(graph.artifact.path.parents[2])["web"], np.random.default_rng(5)
    source, target = np.nonzero(graph.to_scipy().toarray().T == 0)
    free = np.stack([source, target], 1)[source != target]
    chosen = np.split(rng.permutation(free)[:900], 3)
    arrays = {f"{split}/pair": pairs for split, pairs in zip(("train", "valid", "test"), chosen, strict=True)}
    return store_links(dataset, graph, arrays, edges={"train/pair": 0}, held_out_entries=0)


def expected(graph: Graph, links: Links, rows: NDArray[Any], sources: NDArray[np.int64], count: int) -> list[list[int]]:
    """By a sort of the scores of all vertices to which neither an edge nor a pair leads."""
    adjacency, found = graph.to_scipy().toarray(), []
    for split in ("train", "valid", "test"):
        source, target = links.pair(split).T
        adjacency[target, source] = 1
    scores = rows.astype(np.float64) @ rows.T
    for source in sources.tolist():
        candidates = np.setdiff1d(np.flatnonzero(adjacency[:, source] == 0), [source])
        best = candidates[np.lexsort((candidates, -scores[source, candidates]))][:count]
        found.append([*best.tolist(), *[-1] * (count - len(best))])
    return found


def _scorer(links: Links, rows: NDArray[Any], comm: Communicator, folder: Path) -> PairScorer:
    mine = rows[slice(*split_range(NUM_VERTICES, comm.size, comm.rank))]
    copy = RecordedArray(folder, "vectors", mine.shape, mine.dtype)
    copy.write(slice(None), mine)
    vectors: Any = rows
    return PairScorer(TASKS["link"], True, links, made(Dot), vectors, comm, copy, copy.values)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize(("listed", "count"), [(False, 5), (True, 295)])
def test_the_best_targets_are_those_of_a_sort(
    graph: Graph, links: Links, tmp_path: Path, ranks: int, listed: bool, count: int
) -> None:
    # Of small integers, whose scores tie often.
    rows = whole("integers").numpy()
    sources = np.random.default_rng(3).integers(0, NUM_VERTICES, 41) if listed else np.arange(NUM_VERTICES)

    def on_rank(comm: Communicator) -> None:
        scorer = _scorer(links, rows, comm, tmp_path)
        # Only those of the first rank count.
        given = sources if comm.rank == 0 and listed else None
        parts = list(best_targets.best_targets(scorer, graph, given, count))
        assert bool(parts) == (comm.rank == 0)
        if comm.rank == 0:
            np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), sources)
            target, score = (np.concatenate([part[which] for part in parts]) for which in (1, 2))
            assert target.tolist() == expected(graph, links, rows, sources, count)
            there = target >= 0
            exact = (rows[sources][:, None] * rows[target]).sum(2)
            np.testing.assert_array_equal(score, np.where(there, exact, -np.inf))

    on_thread_ranks(ranks, on_rank)


def test_no_sources_have_no_targets_on_any_rank(graph: Graph, links: Links, tmp_path: Path) -> None:
    rows = whole("integers").numpy()

    def on_rank(comm: Communicator) -> None:
        scorer = _scorer(links, rows, comm, tmp_path)
        parts = list(best_targets.best_targets(scorer, graph, np.empty(0, np.int64), 4))
        assert [part[1].shape for part in parts] == ([(0, 4)] if comm.rank == 0 else [])

    on_thread_ranks(3, on_rank)


@pytest.mark.parametrize(("num_vertices", "size"), [(10, 3), (3, 5), (17, 4)])
def test_owners_of_ranges_are_those_of_the_ranges(num_vertices: int, size: int) -> None:
    owners = RangeOwners(num_vertices, size)
    found = owners[np.arange(num_vertices)]
    for rank in range(size):
        start, stop = split_range(num_vertices, size, rank)
        assert (np.flatnonzero(found == rank) == np.arange(start, stop)).all()
    assert found.dtype == np.int32


def test_found_targets_are_read_as_they_were_written(tmp_path: Path) -> None:
    out = best_targets.FoundPairs(tmp_path, 1, np.dtype(np.float32))
    with out.written():
        out.add(np.array([[4, 1], [4, 2]]), np.array([3, 2], np.float32), np.array([2, 0]))
        out.add(np.array([[4, 7]]), np.array([1], np.float32), np.array([1]))
    target, score = best_targets.read_targets(tmp_path, 3, np.dtype(np.float32))
    assert target.tolist() == [[1, 2, -1], [-1, -1, -1], [7, -1, -1]]
    assert score.tolist() == [[3, 2, -np.inf], [-np.inf] * 3, [1, -np.inf, -np.inf]]
    assert score.dtype == np.float32


@pytest.mark.parametrize("vertices", [[5, 0, 5], []])
def test_changed_sources_are_an_error(tmp_path: Path, vertices: list[int]) -> None:
    given = best_targets.GivenSources(tmp_path)
    assert given.map() is None
    given.check()
    given.write(np.array(vertices, np.int64))
    found = given.map()
    assert found is not None
    assert found.tolist() == vertices
    given.check()
    (file,) = tmp_path.rglob("*.npy")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptError, match=re.escape(str(file))):
        given.check()
