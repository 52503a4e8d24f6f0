"""Row pointers that are read in ranges, compared with those of the whole block."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.shards.block_ranges import row_ranges
from support.graphs import random_adjacency, store_graph
from support.scratch import small_chunks


@pytest.mark.parametrize(("chunk_rows", "range_rows"), [(8, 8), (8, 20), (8, 1000), (3, 1), (1, 1), (1, 5)])
def test_ranges_cover_every_row_once_and_decode_every_chunk_once(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, chunk_rows: int, range_rows: int
) -> None:
    small_chunks(monkeypatch, 8 * chunk_rows)
    graph = store_graph(catalog.create("g"), random_adjacency(64, 300, 1, symmetric=True), symmetric=True, num_blocks=3)
    for number in range(graph.num_blocks):
        block, next_row = graph.block(number), graph.block_rows[number]
        for rows in row_ranges(graph, number, range_rows):
            assert rows.first == next_row
            next_row += len(rows.nonzeros)
            local = slice(rows.first - block.row_offset, next_row - block.row_offset + 1)
            np.testing.assert_array_equal(rows.pointers, block.indptr[local])
        assert next_row == graph.block_rows[number + 1]
        pointers = graph.artifact.array(f"block/{number:05d}/indptr")
        ranges = list(pointers.ranges(range_rows))
        assert ranges[0][0] == 0
        assert ranges[-1][1] == len(pointers)
        for (_, stop), (start, _) in pairwise(ranges):
            assert start == stop
            assert stop % chunk_rows == 0


def test_ranges_within_an_array_end_at_its_chunks(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    small_chunks(monkeypatch, 64)
    graph = store_graph(catalog.create("g"), random_adjacency(64, 300, 1, symmetric=True), symmetric=True, num_blocks=1)
    reader = graph.artifact.array("degree")
    assert list(reader.ranges(20, 5, 42)) == [(5, 16), (16, 32), (32, 42)]
    assert list(reader.ranges(1, 8, 17)) == [(8, 16), (16, 17)]
    assert list(reader.ranges(20, 5, 5)) == []
