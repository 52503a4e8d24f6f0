"""Halos: found from segments of rows, numbered by owner, and regrouped by sender for the send lists."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from gnnloom.pipeline.shards.rows.halo_regrouping import HaloGroups, regroup_halos, sent_rows
from gnnloom.pipeline.shards.rows.part_file import PartColumn, write_part_file
from gnnloom.pipeline.shards.rows.row_halo import Halo, find_halo, halo_file
from gnnloom.pipeline.shards.rows.row_routed import RowSegment
from gnnloom.storage.format.artifact import ArtifactWriter
from support.counting import CountingCluster

PART = np.array([0, 2, 1, 0, 2, 1, 1, 0], dtype=np.int32)


def segment(*rows: tuple[int, list[int]]) -> RowSegment:
    """Rows and their columns."""
    columns = [columns for _, columns in rows]
    nonzeros = np.array([len(found) for found in columns])
    return RowSegment(np.array([row for row, _ in rows]), nonzeros, np.array(list(chain(*columns))), None)


@pytest.mark.parametrize("pending", [0, 1 << 20])
def test_a_halo_has_the_columns_of_other_ranks_by_owner_and_id(pending: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnloom.pipeline.shards.rows.row_halo._PENDING_IDS", pending)
    segments = [segment((0, [0, 1, 6]), (3, [2, 3, 4])), segment((7, [1, 2, 7]))]
    halo, own_nonzeros, halo_nonzeros = find_halo(segments, PART, 0, 3)
    assert halo.vertex.tolist() == [2, 6, 1, 4]
    assert halo.offset.tolist() == [0, 0, 2, 4]
    assert (own_nonzeros, halo_nonzeros) == (3, 6)
    assert halo.local_columns(np.array([4, 1, 6, 2, 2])).tolist() == [3, 2, 1, 0, 0]


def test_a_rank_without_foreign_columns_has_an_empty_halo() -> None:
    halo, own_nonzeros, halo_nonzeros = find_halo([segment((0, [0, 7]))], PART, 0, 3)
    assert len(halo.vertex) == 0
    assert halo.offset.tolist() == [0, 0, 0, 0]
    assert (own_nonzeros, halo_nonzeros) == (2, 0)


@pytest.mark.parametrize("num_parts", [1, 2, 3, 10, 17])
def test_regrouped_halos_list_what_each_rank_sends_by_receiver(tmp_path: Path, num_parts: int) -> None:
    rng, n = np.random.default_rng(num_parts), 60
    part = rng.integers(0, num_parts, n).astype(np.int32)
    needed = [np.flatnonzero((part != rank) & (rng.random(n) < 0.3)) for rank in range(num_parts)]
    # A rank that needs nothing.
    needed[-1] = needed[-1][:0]
    writer = ArtifactWriter(tmp_path, "shards", "key")
    for rank, vertices in enumerate(needed):
        halo = Halo.of(vertices, part[vertices], num_parts)
        write_part_file(writer.work / halo_file("forward", rank).path, [PartColumn(halo.vertex, halo.offset)])
    cluster = CountingCluster()
    regroup_halos(writer, "forward", num_parts, cluster)
    for sender in range(num_parts):
        sent = sent_rows(writer.work, "forward", num_parts, sender)
        groups = np.split(sent.entry, (sent.offset - sent.offset[0])[1:-1])
        expected = [[int(vertex) for vertex in vertices if part[vertex] == sender] for vertices in needed]
        assert [group.tolist() for group in groups] == expected
    planned = HaloGroups(num_parts).counts(sum(map(len, needed)))
    assert cluster.tasks == sum(phase.tasks for phase in planned)
    assert max(phase.most_opens for phase in planned) <= int(np.ceil(np.sqrt(num_parts)))


def test_halos_that_are_regrouped_again_stay_as_they_are(tmp_path: Path) -> None:
    writer, cluster = ArtifactWriter(tmp_path, "shards", "key"), CountingCluster()
    for rank, vertices in enumerate(([3], [0, 5])):
        part = np.array([0, 0, 0, 1, 1, 0], np.int32)
        halo = Halo.of(np.array(vertices), part[vertices], 2)
        write_part_file(writer.work / halo_file("forward", rank).path, [PartColumn(halo.vertex, halo.offset)])
    regroup_halos(writer, "forward", 2, cluster)
    first = cluster.tasks
    regroup_halos(writer, "forward", 2, cluster)
    assert cluster.tasks == first
    assert sent_rows(writer.work, "forward", 2, 0).entry.tolist() == [0, 5]
