"""Halos: found in the rows of ranges, numbered by owner, and regrouped by sender for the send lists."""

from __future__ import annotations

import itertools
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from gnnloom.pipeline.shards.rows.row_entries import Places
from gnnloom.pipeline.shards.rows.row_halo import halo_shuffle
from gnnloom.pipeline.shards.rows.row_routed import RowSteps
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.tasks.phase import count
from gnnloom.storage import Catalog
from gnnloom.storage.disk.work_folder import Scratch
from support.covering import few_of
from support.graphs import random_adjacency, store_graph
from support.partitions import random_parts, store_partition


@pytest.mark.parametrize(
    ("num_parts", "few", "range_bytes"),
    [
        *few_of([1, 3, 17], [16, 3], [1 << 20, 2000], together=2),
        *(pytest.param(*case, marks=pytest.mark.long) for case in itertools.product([2, 10], [16, 3], [1 << 20, 2000])),
    ],
)
def test_halos_have_the_columns_of_others_by_owner_and_reach_their_senders(
    catalog: Catalog, num_parts: int, few: int, range_bytes: int
) -> None:
    adjacency, dataset = random_adjacency(60, 200, num_parts, symmetric=True), catalog.create("g")
    # The last rank has no vertex.
    part = random_parts(60, max(1, num_parts - 1), num_parts)
    graph = store_graph(dataset, adjacency, symmetric=True)
    cluster = InProcessCluster(scratch=Scratch(sources=few, range_bytes=range_bytes))
    steps = RowSteps(joined_bytes=300, pending_ids=10)
    shards = shard_rows(dataset, store_partition(dataset, graph, part, num_parts), cluster, steps=steps)
    matrices = [shards.shard(rank).matrix() for rank in range(num_parts)]
    for rank, matrix in enumerate(matrices):
        columns = np.unique(adjacency[part == rank].indices)
        expected = [columns[part[columns] == owner].tolist() if owner != rank else [] for owner in range(num_parts)]
        assert _cut(matrix.halo_vertex, matrix.halo_offset) == expected
        own = shards.shard(rank).vertex()
        sent = _cut(own[matrix.send_row], matrix.send_offset)
        needed = [_cut(each.halo_vertex, each.halo_offset)[rank] for each in matrices]
        assert sent == needed


def _cut(rows: NDArray[np.int64], offset: NDArray[np.int64]) -> list[list[int]]:
    return [rows[a:b].tolist() for a, b in pairwise(offset)]


def test_merges_of_halos_open_few_files() -> None:
    plan = ShufflePlan.stated(halo_shuffle("forward", 17), 17, 24 * 500, 500, Scratch(sources=3))
    phases = count(plan.merges("merge halos"))
    assert phases
    assert max(phase.most_opens for phase in phases) <= 3


@pytest.mark.parametrize(
    ("kind", "most"), few_of(["empty", "one", "all", "even", "dense", "far"], [1 << 20, 8], together=1)
)
def test_places_of_numbers_are_those_of_a_binary_search(kind: str, most: int) -> None:
    rng = np.random.default_rng(7)
    lists = {
        "empty": np.empty(0, np.int64),
        "one": np.array([1 << 40]),
        "all": np.arange(1000),
        "even": np.arange(500) * 3 + 17,
        "dense": np.concatenate([[0], 1_000_000 + np.arange(900), [1 << 33]]),
        "far": np.unique(rng.integers(0, 1 << 36, 2000)),
    }
    ascending = lists[kind]
    numbers = rng.permutation(np.repeat(ascending, 2))
    np.testing.assert_array_equal(Places(ascending, most).of(numbers), np.searchsorted(ascending, numbers))
    if ascending.max(initial=0) < 1 << 31:
        short = ascending.astype(np.int32)
        np.testing.assert_array_equal(
            Places(short, most).of(numbers.astype(np.int32)), np.searchsorted(ascending, numbers)
        )
