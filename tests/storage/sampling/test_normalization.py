"""GraphSAINT's weights make the loss and the sums of subgraphs unbiased."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import combinations

import numpy as np
import pytest
import scipy.sparse

from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.errors import InputError
from gnnloom.storage.samplers.kind import SUFFICIENT
from gnnloom.storage.sampling import edge_probabilities, normalization
from gnnloom.storage.sampling.normalization import count_samples, count_sufficiently
from gnnloom.storage.sampling.sampler import Normalization, Sample, SubgraphSampler, Weights
from support.covering import few_of
from support.graphs import random_adjacency
from support.samples import in_memory, sampler_of
from support.tolerance import assert_close

COUNTED, FRESH = 6000, 3000


def subgraph_sampler(kind: str, graph: WholeGraph, size: int) -> SubgraphSampler:
    sampler = sampler_of(kind, graph, size)
    assert isinstance(sampler, SubgraphSampler)
    return sampler


def weighted(sample: Sample, weights: Weights) -> scipy.sparse.csr_array:
    """A sample's pattern with the factors of its nonzeros."""
    matrix, count = sample.blocks[0].matrix, len(sample.vertices)
    return scipy.sparse.csr_array((weights.entry, matrix.indices, matrix.indptr), shape=(count, count))


def fresh_samples(sampler: SubgraphSampler, count: int) -> Iterator[Sample]:
    for number in range(count):
        yield sampler.sample(number // sampler.num_batches, number % sampler.num_batches)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["frontier", "vertex", "edge", "walk", "cluster"])
def test_weighted_losses_and_sums_of_fresh_batches_are_unbiased(kind: str) -> None:
    n = 40
    adjacency = random_adjacency(n, 90, 0, symmetric=True)
    sampler = subgraph_sampler(kind, in_memory(adjacency), 15)
    weights = count_samples(sampler, COUNTED)
    rng = np.random.default_rng(0)
    loss, feature = rng.random(n), rng.random(n)
    losses, plain, sums = [], [], np.full((FRESH, n), np.nan)
    for number, sample in enumerate(fresh_samples(sampler, FRESH)):
        found = weights.weights(sample)
        losses.append(found.loss @ loss[sample.vertices])
        plain.append(loss[sample.vertices].mean())
        sums[number, sample.vertices] = weighted(sample, found) @ feature[sample.vertices]
    # The counted weights have an error of their own, with the same deviation for as many batches.
    spread = np.sqrt(1 / FRESH + 1 / COUNTED)
    assert abs(np.mean(losses) - loss.mean()) < 4.5 * np.std(losses) * spread + 1e-12
    drawn = np.count_nonzero(~np.isnan(sums), axis=0)
    # Where a neighbor is missing in a few batches only, the deviation that is found is far too small now and then.
    error = (np.nanmean(sums, axis=0) - adjacency @ feature) / np.maximum(np.nanstd(sums, axis=0), 0.05)
    assert np.abs(error / np.sqrt(1 / drawn + FRESH / (COUNTED * drawn))).max() < 4.5
    if kind == "frontier":
        assert abs(np.mean(plain) - loss.mean()) > 4.5 * np.std(plain) * spread


#: Sets of vertices that a batch may have, with their probabilities.
Law = dict[frozenset[int], float]


def edge_law(pattern: np.ndarray, size: int) -> Law:
    """The law of the vertices of a batch of edges, from every sequence of draws."""
    n = len(pattern)
    neighbors = [[w for w in range(n) if pattern[v, w] and w != v] for v in range(n)]

    @cache
    def law(left: int) -> Law:
        found: defaultdict[frozenset[int], float] = defaultdict(float)
        for first in range(n if left else 0):
            seconds = neighbors[first] if left > 1 else []
            for second in seconds or [first]:
                for others, chance in law(left - (2 if seconds else 1)).items():
                    found[others | {first, second}] += chance / n / max(1, len(seconds))
        return dict(found) or {frozenset(): 1.0}

    return law(size)


def dealt_law(group: np.ndarray, per_batch: int) -> Law:
    """The law of the vertices of a batch of groups: of every batch of an epoch, every choice of groups."""
    groups = range(int(group.max()) + 1)
    sizes = [len(groups[first : first + per_batch]) for first in range(0, len(groups), per_batch)]
    found: defaultdict[frozenset[int], float] = defaultdict(float)
    for size in sizes:
        chosen = list(combinations(groups, size))
        for each in chosen:
            found[frozenset(np.flatnonzero(np.isin(group, each)).tolist())] += 1 / len(sizes) / len(chosen)
    return dict(found)


def pattern_of(n: int, *, symmetric: bool, seed: int) -> np.ndarray:
    """A few edges, self loops on some vertices, and two vertices without neighbors."""
    rng = np.random.default_rng(seed)
    pattern = rng.random((n, n)) < 0.4
    pattern |= pattern.T if symmetric else False
    np.fill_diagonal(pattern, rng.random(n) < 0.5)
    pattern[-2:, :-2] = False
    pattern[:-2, -2:] &= not symmetric
    pattern[-2:, -2:] &= np.eye(2, dtype=bool)
    return pattern


def check_law(given: Normalization, pattern: np.ndarray, law: Law) -> None:
    """Expected loss weights and sums over the whole law, exactly."""
    n = len(pattern)
    entry_number = np.full((n, n), -1)
    entry_number[pattern] = np.arange(pattern.sum())
    total, drawn, sums = 0.0, np.zeros(n), np.zeros((n, n))
    losses = np.zeros(n)
    graph = in_memory(scipy.sparse.csr_array(pattern.astype(float)))
    sampler = subgraph_sampler("vertex", graph, n)
    for members, chance in law.items():
        vertices = np.array(sorted(members))
        sampler.draw = lambda epoch, batch, vertices=vertices: vertices  # type: ignore[method-assign, misc]
        sample = sampler.sample(0, 0)
        found = given.weights(sample)
        total += chance
        losses[vertices] += chance * found.loss
        drawn[vertices] += chance
        sums[np.ix_(vertices, vertices)] += chance * weighted(sample, found).toarray()
    assert_close(total, 1.0, steps=64)
    reached = drawn > 0
    assert_close(losses[reached], np.full(reached.sum(), 1 / n), steps=1024)
    # A nonzero whose ends are never together can have no weight.
    together = np.array(
        [[sum(chance for each, chance in law.items() if {u, v} <= each) > 0 for v in range(n)] for u in range(n)]
    )
    assert_close((sums / drawn[:, None])[pattern & together], np.ones((pattern & together).sum()), steps=1024)


@pytest.mark.parametrize(("size", "symmetric"), few_of([1, 2, 3, 4, 5], [True, False], together=1))
def test_weights_of_edge_batches_are_exact(size: int, symmetric: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed, long in ((0, 1 << 16), (1, 1)):
        monkeypatch.setattr(edge_probabilities, "_LONG", long)
        pattern = pattern_of(6, symmetric=symmetric, seed=seed)
        for given in (pattern, pattern[:-2, :-2], pattern[2:, 2:]):
            sampler = subgraph_sampler("edge", in_memory(scipy.sparse.csr_array(given.astype(float))), size)
            exact = sampler.exact_normalization(symmetric=symmetric)
            assert exact is not None
            check_law(exact, given, edge_law(given, size))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
def test_weights_of_vertex_batches_are_exact(size: int) -> None:
    pattern = pattern_of(7, symmetric=False, seed=2)
    sampler = subgraph_sampler("vertex", in_memory(scipy.sparse.csr_array(pattern.astype(float))), size)
    exact = sampler.exact_normalization(symmetric=False)
    assert exact is not None
    check_law(exact, pattern, dealt_law(np.arange(7), size))


def test_weights_of_cluster_batches_are_exact() -> None:
    # 80 vertices in 10 parts, 8 of them in a batch: the last batch of an epoch has 2.
    adjacency = random_adjacency(80, 300, 0, symmetric=True)
    sampler = sampler_of("cluster", in_memory(adjacency), 64)
    assert isinstance(sampler, SubgraphSampler)
    exact = sampler.exact_normalization(symmetric=True)
    assert exact is not None
    law = dealt_law(sampler.parts.part, sampler.parts_per_batch)  # type: ignore[attr-defined]
    check_law(exact, adjacency.toarray() != 0, law)


#: The size at which counts of 200 batches give weights of losses that sum to 1.35, and .3 of the neighbors' sum.
LARGE, SIZE, BATCHES = 20_000, 400, 1500


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vertex", "edge"])
def test_batches_of_a_fiftieth_of_the_graph_are_unbiased(kind: str) -> None:
    adjacency = random_adjacency(LARGE, 200_000, 0, symmetric=True)
    sampler = subgraph_sampler(kind, in_memory(adjacency), SIZE)
    exact = sampler.exact_normalization(symmetric=True)
    assert exact is not None
    degree = np.diff(adjacency.tocsr().indptr)
    totals, ratios = np.empty(BATCHES), np.empty((BATCHES, 2))
    for number, sample in enumerate(fresh_samples(sampler, BATCHES)):
        found = exact.weights(sample)
        totals[number] = found.loss.sum()
        # Neighbors that the rows have by their weights, and those that they have in the graph; both in proportion to
        # the inverse of how often a batch has the row.
        ratios[number] = found.loss @ weighted(sample, found).sum(1), found.loss @ degree[sample.vertices]
    # Batches are independent, or of one epoch and then negatively correlated, so the mean over them has at most this
    # standard error. 4.5 of them are exceeded with a probability of 7e-6; the seed is fixed.
    error = np.std(totals) / np.sqrt(BATCHES)
    assert abs(totals.mean() - 1) < 4.5 * error + 1e-12
    assert error < 0.005
    neighbors, whole = ratios.T
    error = np.std(neighbors - whole) / np.sqrt(BATCHES)
    assert abs(neighbors.mean() - whole.mean()) < 4.5 * error
    assert error < 0.02 * whole.mean()


@pytest.mark.slow
def test_sufficient_counts_are_all_but_unbiased_at_this_size() -> None:
    adjacency = random_adjacency(LARGE, 200_000, 0, symmetric=True)
    sampler = subgraph_sampler("walk", in_memory(adjacency), SIZE)
    counted, degree = count_sufficiently(sampler), np.diff(adjacency.tocsr().indptr)
    totals, ratios = np.empty(BATCHES), np.empty((BATCHES, 2))
    for number, sample in enumerate(fresh_samples(sampler, BATCHES)):
        found = counted.weights(sample)
        totals[number] = found.loss.sum()
        ratios[number] = found.loss @ weighted(sample, found).sum(1), found.loss @ degree[sample.vertices]
    # A walk goes on along one of 20 edges of a vertex, so an edge is counted about 7 times: e^-7 of what edges carry is
    # lost. The rest is the error of the counts and of the batches.
    assert abs(totals.mean() - 1) < 0.005
    neighbors, whole = ratios.sum(0)
    assert abs(neighbors / whole - 1) < 0.02


def test_counting_ends_when_vertices_were_seen_often_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = subgraph_sampler("walk", in_memory(random_adjacency(300, 900, 0, symmetric=True)), 60)
    counted = count_sufficiently(sampler)
    assert counted.mean_count >= SUFFICIENT
    assert count_samples(sampler, counted.samples - 1).mean_count < SUFFICIENT
    monkeypatch.setattr(normalization, "MOST_COUNTED", 7)
    assert count_sufficiently(sampler).samples == 7


def test_what_was_never_counted_has_finite_weights() -> None:
    sampler = subgraph_sampler("walk", in_memory(random_adjacency(500, 900, 0, symmetric=True)), 20)
    weights = count_samples(sampler, 1)
    for batch in range(20):
        found = weights.weights(sampler.sample(0, batch))
        assert np.isfinite(found.loss).all()
        assert (found.entry > 0).all()
    with pytest.raises(InputError, match="pre-sampling of 0"):
        count_samples(sampler, 0)
