"""Halos: found from segments of rows, numbered by owner, and regrouped by sender for the send lists."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from gnnloom.pipeline.external_sort import merge_levels
from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.shards.rows.row_halo import Halo, find_halo, halo_shuffle, route_halo, sent_rows
from gnnloom.pipeline.shards.rows.row_order import Places
from gnnloom.pipeline.shards.rows.row_routed import RowSegment
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.phase import Needs, Phase, count, run
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


@dataclass(frozen=True)
class RouteHaloTask:
    """Routes the halo of one rank, as the task that writes its shard does."""

    writer: ArtifactWriter
    shuffle: Shuffle
    rank: int
    halo: Halo
    lane: Lane
    needs: Needs = field(default_factory=Needs)

    @property
    def name(self) -> str:
        return f"row/{self.rank:05d}"


def run_route(task: RouteHaloTask) -> int:
    with task.writer.task(task.name) as output, task.shuffle.routed(output, task.lane) as out:
        route_halo(out, task.halo, task.rank)
    return len(task.halo.vertex)


@pytest.mark.parametrize("few", [16, 3])
@pytest.mark.parametrize("num_parts", [1, 2, 3, 10, 17])
def test_halos_reach_their_senders_by_receiver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_parts: int, few: int
) -> None:
    monkeypatch.setattr(merge_levels, "FEW_SOURCES", few)
    rng, n = np.random.default_rng(num_parts), 60
    part = rng.integers(0, num_parts, n).astype(np.int32)
    needed = [np.flatnonzero((part != rank) & (rng.random(n) < 0.3)) for rank in range(num_parts)]
    # A rank that needs nothing.
    needed[-1] = needed[-1][:0]
    writer, cluster = ArtifactWriter(tmp_path, "shards", "key"), CountingCluster()
    rows = sum(map(len, needed))
    plan = ShufflePlan(writer, halo_shuffle("forward", num_parts), num_parts, 24 * rows, rows)
    shuffle, halos = plan.shuffle, [Halo.of(vertices, part[vertices], num_parts) for vertices in needed]
    tasks = [RouteHaloTask(writer, shuffle, rank, halo, plan.lane(rank)) for rank, halo in enumerate(halos)]
    merges = plan.merges("merge halos")
    run([Phase("shard", run_route, tasks, files=(plan.files,)), *merges], cluster, writer)
    with OpenFiles(writer.work) as files:
        for sender in range(num_parts):
            entry, offset = sent_rows(shuffle.rows(writer.work, files), sender, num_parts)
            expected = [[int(vertex) for vertex in vertices if part[vertex] == sender] for vertices in needed]
            assert [group.tolist() for group in np.split(entry, offset[1:-1])] == expected
    assert cluster.tasks == num_parts + sum(len(phase.tasks) for phase in merges)
    assert max((phase.most_opens for phase in count(merges)), default=0) <= few


@pytest.mark.parametrize("kind", ["empty", "one", "all", "even", "dense", "far"])
def test_places_of_ids_are_those_of_a_binary_search(kind: str) -> None:
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
    ids = rng.permutation(np.repeat(ascending, 2))
    for wanted in (ids, ids.astype(np.int32)) if ascending.max(initial=0) < 1 << 31 else (ids,):
        np.testing.assert_array_equal(Places(ascending).of(wanted), np.searchsorted(ascending, wanted))
