"""What moves change reaches the tasks that change it: every row once, in the order in which it was written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.partition.measure.volume import KeySums
from gnnloom.pipeline.partition.multilevel import net_updates
from gnnloom.pipeline.partition.multilevel.incidence import IncidenceWriter
from gnnloom.pipeline.partition.multilevel.net_updates import route_rows
from gnnloom.pipeline.partition.multilevel.pieces import range_pieces, reading_tasks, round_tasks, writing_tasks
from gnnloom.pipeline.shuffle import runs
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.shuffle.unrecorded import UnrecordedShuffle
from gnnloom.storage.disk.work_folder import BESIDE
from support.covering import examples

EXAMPLES = settings(
    max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


TASKS = st.lists(st.lists(st.lists(st.integers(0, 29), max_size=20), max_size=4), min_size=1, max_size=BESIDE.files + 3)


def written(rows: UnrecordedShuffle, task: int, runs: list[Any], ranges: Sequence[range], key: int) -> Any:
    """Route runs as a task does, and return what it returns."""
    with rows.routed(task) as out:
        route_rows(out, "row", runs, ranges, key)
    return task, out.written


@EXAMPLES
@given(tasks=TASKS, count=st.integers(1, 7), key=st.integers(0, 1))
def test_rows_of_ranges_come_back_in_the_order_in_which_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, tasks: list[list[list[int]]], count: int, key: int
) -> None:
    ranges, numbers = range_pieces(range(30), count), iter(range(10**6))
    work = tmp_path_factory.mktemp("rows")
    stored = UnrecordedShuffle.named(work, "rows", len(tasks), [Column("row", "int64", (2,))], len(ranges))
    stored.create()
    every, found = [np.empty((0, 2), dtype=np.int64)], []
    for task, each in enumerate(tasks):
        rows = [np.array([(at, next(numbers)) for at in run], dtype=np.int64).reshape(-1, 2) for run in each]
        rows = [np.ascontiguousarray(run[:, ::-1]) if key else run for run in rows]
        found.append(written(stored, task, rows, ranges, key))
        every += rows
    # Tasks return in any order.
    assert stored.list_runs(reversed(found)) == len(np.concatenate(every))
    with OpenFiles(work) as files:
        opened, all_rows = stored.rows(files), np.concatenate(every)
        for number, span in enumerate(ranges):
            expected = all_rows[(all_rows[:, key] >= span.start) & (all_rows[:, key] < span.stop)]
            np.testing.assert_array_equal(opened.read(number, number + 1).column("row"), expected)
            sections = [section.read("row") for section in opened.sections(number, number + 1)]
            np.testing.assert_array_equal(np.concatenate([expected[:0], *sections]), expected)
            assert opened.num_rows()[number] == len(expected)
    stored.remove()
    assert not list(work.iterdir())


@pytest.mark.parametrize("most", [1, 3, 1 << 10])
def test_every_net_of_a_moving_vertex_is_updated(tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net_updates, "_RUN_UPDATES", most)
    with IncidenceWriter(tmp_path, np.dtype(np.int32)) as writer:
        writer.append(np.array([0, 3, 3, 7]), np.array([1, 4, 6, 0, 1, 2, 9], dtype=np.int32))
        vertices = writer.close()
    found = list(net_updates.net_updates(np.array([[2, 5, 6], [1, 3, 3], [0, 7, 8]]), vertices))
    assert max(map(len, found)) <= most
    assert np.concatenate(found).tolist() == [[net, 5, 6] for net in (0, 1, 2, 9)] + [[net, 7, 8] for net in (1, 4, 6)]


@EXAMPLES
@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=BESIDE.files + 3).filter(any),
    shares=st.integers(1, 9),
    most=st.integers(1, 9),
)
def test_rows_of_several_tasks_are_split_evenly(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], shares: int, most: int
) -> None:
    work = tmp_path_factory.mktemp("rows")
    rows = UnrecordedShuffle.named(work, "rows", len(counts), [Column("row", "int64", (1,))])
    rows.create()
    numbers = np.arange(sum(counts))
    pieces = np.split(numbers[:, None], np.cumsum(counts)[:-1])
    every = range(len(numbers))
    assert rows.list_runs(written(rows, task, [piece], [every], 0) for task, piece in enumerate(pieces)) == len(every)
    with OpenFiles(work) as files, pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "BLOCK_BYTES", 8 * most)
        found = [list(rows.rows(files).numbered(share, "row")) for share in range_pieces(every, shares)]
    assert len(found) == min(shares, len(numbers))
    assert [number for share in found for block in share for number in block[:, 0].tolist()] == numbers.tolist()
    assert all(len(block) <= most for share in found for block in share)
    assert all(abs(sum(map(len, share)) - len(numbers) / len(found)) < 1 for share in found)


def test_weights_of_classes_are_summed_whatever_is_merged_at_a_time() -> None:
    rng, classes = np.random.default_rng(0), KeySums(1 << 16)
    move_class, weight = rng.integers(0, 50, (2, 300_000))
    for piece in np.split(np.arange(300_000), 30):
        classes.add(move_class[piece], weight[piece])
    found, total = classes.merged()
    np.testing.assert_array_equal(found, np.arange(50))
    np.testing.assert_array_equal(total, np.bincount(move_class, weights=weight))


def test_rounds_of_few_vertices_take_few_tasks_and_rounds_of_many_take_many() -> None:
    assert [round_tasks(10**4, workers) for workers in (1, 4, 1000)] == [2, 8, 16]
    assert [round_tasks(10**9, workers) for workers in (1, 1000)] == [954, 2000]
    # Sixteen lanes are few; of more, every task reads 64 KiB or more, or it is the only one.
    assert [reading_tasks(100, num_bytes, 16) for num_bytes in (0, 1 << 40)] == [100, 100]
    assert [reading_tasks(100, num_bytes, 32) for num_bytes in (0, 1 << 22, 1 << 40)] == [1, 2, 100]
    assert [writing_tasks(100, num_bytes, 32) for num_bytes in (0, 1 << 26, 1 << 40)] == [16, 32, 100]
