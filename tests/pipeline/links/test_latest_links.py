"""Links that hold out the latest edges agree with a NumPy sort by time, and the graph without them has no times."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.pipeline.links.projection import project_links
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.pipeline.tasks.cluster import InProcessCluster, ThreadedCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.random_numbers import stream_key
from support.covering import few_of
from support.graphs import random_adjacency, store_graph
from support.links import mixed, pairs_of
from support.scratch import small_chunks
from support.small_stages import SMALL_FILES, make_small
from support.stopping import StoppingCluster, run_in_steps, workers_and_tasks

_GOLDEN = 0x9E3779B97F4A7C15
#: What times can be: many ties; both signs, two zeros and fractions; seconds and microseconds since 1970, and seconds
#: with fractions, all of which float32 would round to fewer times.
TIMES = {
    "years": lambda rng, count: rng.integers(2016, 2021, count),
    "signs": lambda rng, count: rng.choice([-2.5, -1.0, -0.0, 0.0, 1e-30, 3.25, -1e30], count),
    "seconds": lambda rng, count: 1_700_000_000 + rng.integers(0, count, count),
    "microseconds": lambda rng, count: 1_700_000_000_000_000 + rng.integers(0, count, count),
    "fractions": lambda rng, count: 1_700_000_000 + rng.integers(0, count, count) / 1000,
}


def store(catalog: Catalog, times: str, *, symmetric: bool, seed: int = 1) -> tuple[Dataset, Any]:
    """A graph whose edges have times; both directions of an edge have the same."""
    pattern = random_adjacency(200, 900, seed, symmetric=symmetric)
    pairs = pairs_of(pattern, symmetric=symmetric)
    # Zeros are times, too: matrices of times and of a pattern are kept apart.
    time = TIMES[times](np.random.default_rng(seed), len(pairs)).astype(np.float64)
    by_pair = {(source, target): value for (source, target), value in zip(pairs.tolist(), time, strict=True)}
    rows = np.repeat(np.arange(200), np.diff(pattern.indptr))
    ends = zip(pattern.indices.tolist(), rows.tolist(), strict=True)
    found = [by_pair.get((min(pair), max(pair)) if symmetric else pair, 0) for pair in ends]
    values = scipy.sparse.csr_array((np.array(found, np.float64), pattern.indices, pattern.indptr), shape=pattern.shape)
    dataset = catalog.create("web")
    store_graph(dataset, values, symmetric=symmetric, has_times=True, num_blocks=3)
    return dataset, (pairs, time)


def draw(dataset: Dataset, cluster: Any = None, **options: Any) -> Links:
    (ingested,) = dataset.ingested_graphs()
    graph = dataset.graph(ingested.key)
    return draw_links(dataset, graph, DrawOptions(by="time", **options), cluster or InProcessCluster())


def drawn(pairs: np.ndarray, time: np.ndarray, counts: dict[str, int], seed: int) -> dict[str, np.ndarray]:
    """Pairs of each split, and of the rest, in the order of the pairs: the latest first, ties by their random keys."""
    stream = int(stream_key(seed, "links"))
    random = [
        mixed(mixed(stream + (source + 1) * _GOLDEN) + (target + 1) * _GOLDEN) for source, target in pairs.tolist()
    ]
    order = np.lexsort((np.array(random, np.uint64), -time.astype(np.float64)))
    found, start = {}, 0
    for name, count in {**counts, "rest": len(pairs) - sum(counts.values())}.items():
        found[name] = pairs[np.sort(order[start : start + count])]
        start += count
    return found


@pytest.mark.parametrize(("times", "case"), few_of(TIMES, [(True, 0.0), (False, 0.3)], together=1))
def test_the_latest_edges_are_those_of_numpy(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, times: str, case: tuple[bool, float]
) -> None:
    symmetric, disjoint = case
    small_chunks(monkeypatch, 500)
    dataset, (pairs, time) = store(catalog, times, symmetric=symmetric)
    links = draw(dataset, valid=0.05, test=0.1, disjoint=disjoint, seed=4)
    counts = {"test": len(pairs) // 10, "valid": len(pairs) // 20}
    if disjoint:
        counts["train"] = int(3 * (len(pairs) - sum(counts.values())) / 10)
    expected = drawn(pairs, time, counts, 4)
    expected.setdefault("train", expected["rest"])
    when = {tuple(pair): value for pair, value in zip(pairs.tolist(), time.tolist(), strict=True)}
    earliest = np.inf
    for split in ("test", "valid", "train"):
        found = links.pair(split)
        np.testing.assert_array_equal(found, expected[split])
        assert links.num_pairs[split] == len(found) > 0
        own = [when[tuple(pair)] for pair in found.tolist()]
        assert max(own) <= earliest
        earliest = min(own)
    # The graph without them is a pattern: times are not weights.
    message = dataset.graph(links.message_graph)
    kept = message.to_scipy()
    assert not message.weighted
    assert message.weights(0) is None
    assert (kept.data == 1).all()
    np.testing.assert_array_equal(pairs_of(kept, symmetric=symmetric), expected["rest"])
    np.testing.assert_array_equal(kept.diagonal(), 1)
    assert message.nnz == dataset.graph(links.graph).nnz - links.artifact.facts["held_out_entries"]
    np.testing.assert_array_equal(links.weight(), 0 if disjoint else 1)
    assert links.weight().dtype == np.uint8
    for info in dataset.artifacts():
        check_artifact(dataset, Artifact(info.path))


@pytest.mark.parametrize(("bits", "times"), few_of([4, 8], ["years", "microseconds"], together=1))
def test_thresholds_are_exact_whatever_the_rounds(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, bits: int, times: str
) -> None:
    # In few bits a round, many rounds are needed, both within a time and before it.
    for name, value in (("ROUND_BITS", bits), ("_CELLS", 1 << bits)):
        monkeypatch.setattr(f"gnnloom.pipeline.links.thresholds.{name}", value)
    dataset, (pairs, time) = store(catalog, times, symmetric=False)
    links = draw(dataset, valid=0.1, test=0.3, disjoint=0.5, seed=bits)
    counts = {"test": 3 * len(pairs) // 10, "valid": len(pairs) // 10}
    counts["train"] = (len(pairs) - sum(counts.values())) // 2
    expected = drawn(pairs, time, counts, bits)
    for split in counts:
        np.testing.assert_array_equal(links.pair(split), expected[split])


def test_edges_without_times_or_of_one_time_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    adjacency = random_adjacency(50, 200, 1, symmetric=True)
    plain = Catalog(tmp_path / "plain").create("web")
    graph = store_graph(plain, adjacency, symmetric=True, num_blocks=2)
    for refused in (draw, lambda dataset: project_links(dataset, graph, DrawOptions(by="time"), 1, 1 << 30)):
        with pytest.raises(InputError, match=r"--times.*--merge"):
            refused(plain)
    weighted = Catalog(tmp_path / "weighted").create("web")
    store_graph(weighted, adjacency, symmetric=True, weighted=True, num_blocks=2)
    # Weights were rounded to float32, which would make different times equal.
    with pytest.raises(InputError, match="the edges have no times"):
        draw(weighted)
    equal = Catalog(tmp_path / "equal").create("web")
    # The loops have another value, and are no edges.
    same = adjacency.multiply(2006).tocsr()
    same.setdiag(1)
    store_graph(equal, same, symmetric=True, has_times=True, num_blocks=2)
    number = len(pairs_of(adjacency, symmetric=True))
    with pytest.raises(InputError, match=f"all {number:,} edges have the same time, so none is later than others"):
        draw(equal)
    wrong = Catalog(tmp_path / "wrong").create("web")
    data = same.data.copy()
    data[np.flatnonzero(data != 1)[7]] = np.nan
    undefined = scipy.sparse.csr_array((data, same.indices, same.indptr), shape=same.shape)
    store_graph(wrong, undefined, symmetric=False, has_times=True, num_blocks=2)
    with pytest.raises(InputError, match=r"block \d has an edge whose time is not a number"):
        draw(wrong)
    for dataset in (plain, weighted, equal, wrong):
        assert dataset.artifacts("links") == []
        assert len(dataset.artifacts("graph")) == 1


@pytest.mark.slow
@workers_and_tasks
def test_the_bytes_are_the_same_for_any_number_of_workers_and_after_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, tasks: int
) -> None:
    make_small(monkeypatch.setattr)

    def stored(name: str) -> Dataset:
        return store(Catalog(tmp_path / name), "years", symmetric=True, seed=2)[0]

    def drawn_on(dataset: Dataset, cluster: Any) -> dict[str, str]:
        draw(dataset, cluster, seed=6, disjoint=0.4)
        return {f"{info.kind}/{info.key}": Artifact(info.path).digest for info in dataset.artifacts()}

    expected = drawn_on(stored("one"), InProcessCluster(scratch=SMALL_FILES))
    assert drawn_on(stored("workers"), ThreadedCluster(workers, 1 << 30, SMALL_FILES)) == expected
    assert drawn_on(stored("two workers"), ThreadedCluster(2, 1 << 30, SMALL_FILES)) == expected
    killed = stored("tasks")
    found, ran = run_in_steps(lambda cluster: drawn_on(killed, cluster), tasks, scratch=SMALL_FILES)
    assert found == expected
    assert len(ran) == len(set(ran))
    # A graph that was removed is made again.
    shutil.rmtree(killed.path / "graph" / killed.links().message_graph)
    assert drawn_on(killed, InProcessCluster(scratch=SMALL_FILES)) == expected


@pytest.mark.parametrize("times", ["years", "seconds"])
def test_the_planned_tasks_are_those_that_run(catalog: Catalog, times: str) -> None:
    cluster = StoppingCluster()
    dataset, _ = store(catalog, times, symmetric=True)
    graph = dataset.graph()
    planned = project_links(dataset, graph, DrawOptions(by="time"), 1, cluster.memory)
    links = draw(dataset, cluster)
    assert planned.key == links.artifact.key
    assert planned.message_graph == links.message_graph
    rounds = sum(function == "count_keys" for function, _ in cluster.ran) // graph.num_blocks
    # Four rounds find a time, unless fewer leave one edge, and up to two more the edges of it.
    assert rounds == {"years": 5, "seconds": 5}[times]
    assert planned.tasks == len(cluster.ran) + (6 - rounds) * graph.num_blocks
    made = [dataset.graph(links.message_graph).artifact, links.artifact]
    stored = sum(int(np.prod(each.shape)) * np.dtype(each.dtype).itemsize for a in made for each in a.records.values())
    assert stored <= planned.output_bytes <= 1.2 * stored
