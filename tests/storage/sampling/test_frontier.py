"""The frontier sampler pops by degree, replaces by a uniform neighbor, and has its first frontier in the sample."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray

from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.sampling.frontier import FrontierSampler
from support.chi_squared import chance
from support.graphs import random_adjacency
from support.samples import in_memory


def skewed(n: int = 400) -> WholeGraph:
    """A graph with degrees from 1 to n/2, every vertex with a self loop."""
    rng = np.random.default_rng(0)
    ends = (n * rng.random((2, 2 * n)) ** 3).astype(np.int64)
    leaves = np.stack([np.arange(1, n), (np.arange(1, n) * rng.random(n - 1) ** 3).astype(np.int64)])
    row, column = np.concatenate([ends, leaves], axis=1)
    matrix = scipy.sparse.coo_array((np.ones(len(row)), (row, column)), shape=(n, n)).tocsr()
    return in_memory(matrix + matrix.T + scipy.sparse.eye_array(n))


def popping(sampler: FrontierSampler, weight: NDArray[np.float64], batches: int) -> float:
    """The p-value of a chi-squared test that pops follow the weights of the vertices in the frontier of each step."""
    classes = np.minimum(15, (2 * np.log2(weight)).astype(np.int64))
    observed, expected, variance = np.zeros(16), np.zeros(16), np.zeros((16, 16))
    for batch in range(batches):
        drawn, popped = sampler.draw_in_order(0, batch)
        size = sampler.frontier
        assert (popped[:size] == -1).all()
        assert (popped[size:] >= 0).all()
        frontier = drawn[:size].copy()
        for new, old in zip(drawn[size:].tolist(), popped[size:].tolist(), strict=True):
            share = np.bincount(classes[frontier], weights=weight[frontier], minlength=16) / weight[frontier].sum()
            expected += share
            variance += np.diag(share) - np.outer(share, share)
            observed[classes[old]] += 1
            frontier[np.flatnonzero(frontier == old)[0]] = new
    # Given the frontier, steps are independent, so the sums of the deviations have the sum of their covariances.
    used = expected > 20
    used[np.flatnonzero(used)[0]] = False
    deviation = (observed - expected)[used]
    statistic = deviation @ np.linalg.solve(variance[np.ix_(used, used)], deviation)
    return chance(float(statistic), int(used.sum()))


@pytest.mark.parametrize(("enlargement", "cap"), [(2.0, None), (1.1, None), (8.0, None), (2.0, 7)])
def test_pops_are_proportional_to_degrees(enlargement: float, cap: int | None) -> None:
    graph = skewed()
    degree = np.diff(graph.matrix.indptr) - 1.0
    assert degree.max() > 80 * degree.min()
    weight = np.minimum(degree, cap or np.inf)
    sampler = FrontierSampler(graph, 3, 1500, 20, enlargement, cap)
    assert popping(sampler, weight, 4) > 1e-3
    # Samplers that weight by degree plus 1, or ignore the cap, would fail this test.
    assert popping(sampler, degree + 1 if cap is None else degree, 4) < 1e-3


def test_successors_are_uniform_neighbors() -> None:
    graph = skewed()
    counts: dict[int, list[int]] = defaultdict(list)
    for batch in range(40):
        drawn, popped = FrontierSampler(graph, 0, 2000, 50).draw_in_order(0, batch)
        for vertex in (0, 1, 2):
            counts[vertex] += drawn[popped == vertex].tolist()
    for vertex, followers in counts.items():
        row = graph.matrix.indices[graph.matrix.indptr[vertex] : graph.matrix.indptr[vertex + 1]]
        neighbors = row[row != vertex]
        found = np.bincount(followers, minlength=graph.num_vertices)
        assert found.sum() == found[neighbors].sum() > 1000
        mean = len(followers) / len(neighbors)
        assert chance(((found[neighbors] - mean) ** 2 / mean).sum(), len(neighbors) - 1) > 1e-3


def test_the_sample_has_the_first_frontier_and_all_that_came_after() -> None:
    sampler = FrontierSampler(skewed(), 0, 300)
    assert sampler.frontier == 38
    drawn, popped = sampler.draw_in_order(2, 5)
    assert np.count_nonzero(popped == -1) == 38
    np.testing.assert_array_equal(sampler.draw(2, 5), np.unique(drawn))


def test_a_frontier_without_neighbors_goes_on_from_uniform_vertices() -> None:
    """A directed path: vertex i gathers from i - 1 only, and the first from none."""
    path = in_memory(scipy.sparse.diags_array(np.ones(99), offsets=-1, shape=(100, 100)).tocsr())
    drawn, popped = FrontierSampler(path, 0, 500, 10).draw_in_order(0, 0)
    is_step = popped >= 0
    np.testing.assert_array_equal(drawn[is_step], popped[is_step] - 1)
    assert is_step.sum() > 400
    # After the first vertex of the path comes a uniform one.
    ends = np.flatnonzero(is_step & (drawn == 0))
    assert (popped[ends[ends < 499] + 1] == -1).all()
    lone = in_memory(random_adjacency(50, 0, 0, symmetric=True))
    drawn, popped = FrontierSampler(lone, 0, 500, 10).draw_in_order(0, 0)
    assert (popped == -1).all()
    assert len(np.unique(drawn)) == 50
