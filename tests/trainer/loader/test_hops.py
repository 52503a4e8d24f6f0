"""The graph of a batch is a part of the whole graph, in the order of hops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.sampling.layered import layered_batch
from gnnloom.trainer.loader.hops import edge_weight, hops_of
from gnnloom.trainer.place.place import Place
from support.covering import few_of
from support.graphs import random_adjacency
from support.samples import Seeded, in_memory, seeded
from support.tolerance import assert_close

N = 300


def _sampler(fanouts: list[int], *, weighted: bool = False, draw_once: bool = True) -> Seeded:
    adjacency = random_adjacency(N, 2000, 3, symmetric=False)
    adjacency.data[:] = np.random.default_rng(0).random(adjacency.nnz)
    graph = in_memory(adjacency, weighted=weighted)
    return seeded(graph, 0, np.arange(0, N, 3), fanouts, 20, draw_once=draw_once)


@pytest.mark.parametrize("fanouts", [[3], [4, 3, 2], [2, ALL, 1, 5]])
def test_edges_are_entries_of_the_graph_and_each_hop_follows_the_one_before(fanouts: list[int]) -> None:
    sampler = _sampler(fanouts)
    matrix = sampler.graph.matrix
    for number in range(sampler.num_batches):
        sample = sampler.sample(2, number)
        hops = hops_of(sample, Place())
        source, target = hops.edge_index.numpy()
        assert hops.entry is not None
        entry = hops.entry.numpy()
        np.testing.assert_array_equal(hops.vertices[source], matrix.indices[entry])
        np.testing.assert_array_equal(hops.vertices[target], np.searchsorted(matrix.indptr, entry, "right") - 1)
        assert hops.num_sampled_nodes[0] == sample.num_seeds
        assert len(hops.num_sampled_nodes) == len(hops.num_sampled_edges) + 1 == len(fanouts) + 1
        nodes, edges = np.cumsum([0, *hops.num_sampled_nodes]), np.cumsum([0, *hops.num_sampled_edges])
        assert (nodes[-1], edges[-1]) == (len(hops.vertices), len(source))
        for hop in range(len(fanouts)):
            leading = slice(edges[hop], edges[hop + 1])
            assert ((target[leading] >= nodes[hop]) & (target[leading] < nodes[hop + 1])).all()
            assert (source[leading] < nodes[hop + 2]).all()
            # Every vertex of a hop is there because of an edge to the hop before.
            assert set(range(nodes[hop + 1], nodes[hop + 2])) <= set(source[leading])


def test_what_a_batch_and_its_sample_give_is_the_same() -> None:
    sampler = _sampler([4, 3, 2])
    sample = sampler.sample(0, 1)
    one, other = hops_of(sample, Place()), hops_of(layered_batch(sampler.graph, sample), Place())
    assert other.entry is None
    assert torch.equal(one.vertices, other.vertices)
    assert torch.equal(one.edge_index, other.edge_index)
    assert (one.num_sampled_nodes, one.num_sampled_edges) == (other.num_sampled_nodes, other.num_sampled_edges)


@pytest.mark.parametrize(
    ("weighted", "normalization", "fanouts"),
    few_of([False, True], ["symmetric", "mean", "none"], [(ALL, ALL), (3, 2)], together=2),
)
def test_weights_of_edges_are_those_of_the_whole_graph(
    fanouts: tuple[int, ...], normalization: str, weighted: bool
) -> None:
    sampler = _sampler(list(fanouts), weighted=weighted)
    matrix = sampler.graph.matrix
    data = np.ones(matrix.nnz) if matrix.data is None else matrix.data.astype(np.float64)
    row = np.repeat(np.arange(N), np.diff(matrix.indptr))
    degree = np.bincount(row, data, N)
    factor = {
        "symmetric": 1 / np.sqrt(degree[row] * degree[matrix.indices]),
        "mean": 1 / degree[row],
        "none": np.ones(matrix.nnz),
    }[normalization]
    sample = sampler.sample(0, 0)
    hops = hops_of(sample, Place())
    found = edge_weight(layered_batch(sampler.graph, sample), normalization, Place(torch.float64))
    assert hops.entry is not None
    entry = hops.entry.numpy()
    drawn = np.bincount(row[entry], minlength=N)
    share = np.diff(matrix.indptr)[row[entry]] / drawn[row[entry]]
    assert_close(found, (data * factor)[entry] * share)
    if fanouts == (ALL, ALL):
        assert (share == 1).all()


def test_layers_that_draw_anew_have_no_common_graph() -> None:
    sampler = _sampler([4, 3], draw_once=False)
    with pytest.raises(ValueError, match="draw_once"):
        hops_of(sampler.sample(0, 0), Place())
