"""The order of a partition: by part, then by id, with chunks of the parts read one at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gnnloom.pipeline.shards.grid.part_order import PartOrder
from gnnloom.storage import Catalog, Partition
from support.graphs import random_adjacency, store_graph
from support.partitions import random_parts, store_partition
from support.scratch import small_chunks


@pytest.fixture
def partition(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Partition:
    """Part 3 of 5 is empty, and the parts are stored in several chunks."""
    small_chunks(monkeypatch, 64)
    part = random_parts(70, 5, 2)
    part[part == 3] = 1
    dataset = catalog.create("g")
    graph = store_graph(dataset, random_adjacency(70, 200, 0, symmetric=True), symmetric=True)
    return store_partition(dataset, graph, part, 5)


def test_positions_are_those_of_a_stable_sort_by_part(partition: Partition, tmp_path: Path) -> None:
    order = PartOrder.of(partition, tmp_path / "work" / "places")
    sorted_ids = np.argsort(partition.part(), kind="stable")
    np.testing.assert_array_equal(order.forward(sorted_ids), np.arange(70))
    assert order.forward(np.array([4, 4])).dtype == np.int64
    assert order.to_json() == {"type": "partition"}


def test_a_finished_file_is_used_again(partition: Partition, tmp_path: Path) -> None:
    path = tmp_path / "places"
    expected = PartOrder.of(partition, path).forward(np.arange(70))
    written = path.stat().st_mtime_ns
    np.testing.assert_array_equal(PartOrder.of(partition, path).forward(np.arange(70)), expected)
    assert path.stat().st_mtime_ns == written
