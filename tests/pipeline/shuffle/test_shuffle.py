"""The shuffle: every row reaches the reader of its position, in the order in which it was routed."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort import lanes
from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.shuffle import merges, runs
from gnnloom.pipeline.shuffle.columns import Column, lengths_of
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks import phase
from gnnloom.pipeline.tasks.cluster import DEFAULT_MEMORY, Cluster, InProcessCluster, ThreadedCluster
from gnnloom.pipeline.tasks.phase import Needs, Phase, repairing
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.errors import DamagedWorkError
from gnnloom.storage.format.artifact import ArtifactWriter
from support.array_memory import tracing_arrays
from support.covering import examples, few_of
from support.scratch import merging
from support.stopping import StoppedError, StoppingCluster, run_in_steps

#: A column of each kind: plain, with a trailing shape, and two ragged ones that share their lengths.
COLUMNS = (
    Column("number", "int64"),
    Column("pair", "float32", (2,)),
    Column("count", "int64"),
    Column("ids", "int32", lengths="count"),
    Column("text", "uint8", (3,), lengths="count"),
)
Rows = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class RouteTask:
    """Routes given rows, in some runs."""

    writer: ArtifactWriter
    shuffle: Shuffle
    number: int
    runs: tuple[Sequence[int], ...]
    lane: Lane
    needs: Needs = field(default_factory=Needs)

    @property
    def name(self) -> str:
        return f"route/{self.number:05d}"


def rows_of(columns: tuple[Column, ...], positions: Sequence[int], seed: int) -> Rows:
    """Rows with these positions and any values."""
    rng = np.random.default_rng([seed, len(positions)])
    lengths = set(lengths_of(columns))
    rows: Rows = {"position": np.array(positions, np.int64)}
    for column in columns:
        count = len(positions) if column.lengths is None else int(rows[column.lengths].sum())
        size = (count, *column.trailing)
        rows[column.name] = rng.integers(0, 4 if column.name in lengths else 200, size).astype(column.dtype)
    return rows


def sorted_rows(columns: tuple[Column, ...], rows: Rows) -> Rows:
    """The same rows by position, computed row by row."""
    order = sorted(range(len(rows["position"])), key=lambda k: rows["position"][k])
    found = {"position": rows["position"][order]}
    for column in columns:
        if column.lengths is None:
            found[column.name] = rows[column.name][order]
            continue
        ends = np.cumsum(rows[column.lengths])
        pieces = [rows[column.name][ends[k] - rows[column.lengths][k] : ends[k]] for k in order]
        found[column.name] = np.concatenate([rows[column.name][:0], *pieces])
    return found


def joined(columns: tuple[Column, ...], many: Sequence[Rows]) -> Rows:
    """The rows of all, one after another."""
    none = rows_of(columns, [], 0)
    return {name: np.concatenate([none[name], *(rows[name] for rows in many)]) for name in none}


def route(task: RouteTask) -> int:
    with task.writer.task(task.name) as output, task.shuffle.routed(output, task.lane) as out:
        for number, positions in enumerate(task.runs):
            columns = task.shuffle.columns
            rows = sorted_rows(columns, rows_of(columns, positions, 1000 * task.number + number))
            if number % 2:
                offsets = np.searchsorted(rows["position"], np.arange(task.shuffle.num_positions + 1))
                out.add(Index.of_offsets(offsets.astype(np.int64)), rows)
            else:
                out.add(Index.of_positions(rows["position"]), rows)
    return sum(map(len, task.runs))


Routed = Sequence[tuple[Sequence[int], ...]]


def plan_of(writer: ArtifactWriter, shuffle: Shuffle, routed: Routed) -> ShufflePlan:
    """The plan for the rows of these tasks."""
    return ShufflePlan(writer, shuffle, len(routed), 1000, sum(len(each) for each in routed) * shuffle.num_positions)


def run(writer: ArtifactWriter, shuffle: Shuffle, routed: Routed, cluster: Cluster | None = None) -> None:
    """Route and merge."""
    plan = plan_of(writer, shuffle, routed)
    tasks = [RouteTask(writer, shuffle, number, each, plan.lane(number)) for number, each in enumerate(routed)]
    route_rows = Phase("route", route, tasks, "rows", files=(plan.files,))
    phase.run([route_rows, *plan.merges("merge")], cluster or InProcessCluster(), writer)


def expected_rows(columns: tuple[Column, ...], routed: Routed) -> Rows:
    """All rows in their order, without the code under test."""
    return sorted_rows(
        columns,
        joined(
            columns,
            [
                sorted_rows(columns, rows_of(columns, positions, 1000 * number + at))
                for number, each in enumerate(routed)
                for at, positions in enumerate(each)
            ],
        ),
    )


def check(writer: ArtifactWriter, shuffle: Shuffle, expected: Rows, bounds: Sequence[int]) -> None:
    """Compare the rows of consecutive ranges of positions with those that are expected."""
    ends = {}
    for name in lengths_of(shuffle.columns):
        ends[name] = np.concatenate([[0], np.cumsum(expected[name])])
    with OpenFiles(writer.work) as files:
        rows = shuffle.rows(writer.work, files)
        for start, stop in pairwise(bounds):
            first, last = np.searchsorted(expected["position"], [start, stop])
            found = rows.read(start, stop)
            np.testing.assert_array_equal(found.position, expected["position"][first:last])
            for column in shuffle.columns:
                span = (first, last) if column.lengths is None else ends[column.lengths][[first, last]]
                wanted = expected[column.name][span[0] : span[1]]
                got = found.column(column.name)
                assert got.dtype == np.dtype(column.dtype)
                np.testing.assert_array_equal(got, wanted)


@pytest.fixture
def writer(tmp_path: Path) -> ArtifactWriter:
    writer = ArtifactWriter(tmp_path / "graph" / "key", "graph", "key", scratch=Scratch(sources=3))
    writer.work.mkdir(parents=True)
    return writer


def positions_below(limit: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, limit - 1), max_size=12)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), num_positions=st.integers(1, 40), fan_in=st.integers(2, 4), unique=st.booleans())
def test_any_rows_reach_their_readers_in_order(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, num_positions: int, fan_in: int, unique: bool
) -> None:
    routed: Routed
    if unique:
        # As the vertices of a permutation: every position once.
        order = data.draw(st.permutations(range(num_positions)))
        cuts = sorted(data.draw(st.lists(st.integers(0, num_positions), max_size=6)))
        parts = [order[a:b] for a, b in zip([0, *cuts], [*cuts, num_positions], strict=True)]
        routed = [(tuple(part),) for part in parts]
    else:
        tasks = st.lists(st.lists(positions_below(num_positions), max_size=3), max_size=9)
        routed = [tuple(task) for task in data.draw(tasks)]
    columns = data.draw(st.sampled_from([COLUMNS, COLUMNS[:1], COLUMNS[2:4], ()]))
    bounds = sorted({0, num_positions, *data.draw(st.lists(st.integers(0, num_positions), max_size=4))})
    path, scratch = tmp_path_factory.mktemp("a") / "graph" / "key", merging(fan_in, Scratch(page_bytes=96))
    writer = ArtifactWriter(path, "graph", "key", scratch=scratch)
    writer.work.mkdir(parents=True)
    shuffle = Shuffle("some/rows", num_positions, columns, 1)
    with (
        patch.object(lanes, "BLOCK_BYTES", 40),
        patch.object(runs, "BLOCK_BYTES", 64),
        patch.object(merges, "_STEP_BYTES", data.draw(st.sampled_from([1, 100, 1000]))),
    ):
        run(writer, shuffle, routed)
        check(writer, shuffle, expected_rows(columns, routed), bounds)


MANY = [(list(range(number, 60, 7)), [number, number, 59]) for number in range(11)]


def test_what_was_merged_is_kept_and_what_it_was_merged_from_removed(
    writer: ArtifactWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    shuffle = Shuffle("rows", 60, COLUMNS, 1)
    run(writer, shuffle, MANY)
    assert len([folder for folder in (writer.work / "shuffle/rows").iterdir() if folder.is_dir()]) == 1
    before = sorted(record for record in writer.recorded())
    run(writer, shuffle, MANY)
    assert sorted(record for record in writer.recorded()) == before
    check(writer, shuffle, expected_rows(COLUMNS, MANY), [0, 13, 60])
    shuffle.remove(writer.work)
    assert not (writer.work / "shuffle/rows").exists()


def test_a_damaged_run_is_not_read(writer: ArtifactWriter) -> None:
    shuffle = Shuffle("rows", 60, COLUMNS, 1)
    run(writer, shuffle, MANY)
    path = next((writer.work / "shuffle/rows").rglob("lanes-*-00"))
    content = bytearray(path.read_bytes())
    content[100] ^= 4
    path.write_bytes(content)
    with pytest.raises(DamagedWorkError, match=path.name):
        check(writer, shuffle, expected_rows(COLUMNS, MANY), [0, 60])


@pytest.mark.parametrize("tasks", [1, 5])
@pytest.mark.parametrize("workers", [1, 3])
def test_stopped_after_any_tasks_each_runs_once_and_the_rows_are_the_same(
    writer: ArtifactWriter, monkeypatch: pytest.MonkeyPatch, tasks: int, workers: int
) -> None:
    shuffle = Shuffle("rows", 60, COLUMNS, 1)
    if workers > 1:
        with pytest.raises(StoppedError):
            run(writer, shuffle, MANY, StoppingCluster(9))
        run(writer, shuffle, MANY, ThreadedCluster(workers, DEFAULT_MEMORY))
    else:
        _, ran = run_in_steps(lambda cluster: run(writer, shuffle, MANY, cluster), tasks)
        planned = plan_of(writer, shuffle, MANY).merges("merge")
        assert len(ran) == len(set(ran)) == len(MANY) + sum(len(each.tasks) for each in planned) > 20
    check(writer, shuffle, expected_rows(COLUMNS, MANY), [0, 13, 60])


@pytest.mark.parametrize(
    ("damage", "stop"), few_of(["flipped", "zeroed", "cut", "lost", "exchanged"], [4, 14, 19], together=1)
)
def test_damage_between_a_stop_and_the_next_run_is_repaired(
    writer: ArtifactWriter, monkeypatch: pytest.MonkeyPatch, stop: int, damage: str
) -> None:
    shuffle = Shuffle("rows", 60, COLUMNS, 1)
    with pytest.raises(StoppedError):
        run(writer, shuffle, MANY, StoppingCluster(stop))
    files = sorted(file for file in (writer.work / "shuffle").rglob("lanes-*") if file.stat().st_size)
    content = files[0].read_bytes()
    changed = {
        "flipped": content[:50] + bytes([content[50] ^ 8]) + content[51:],
        "zeroed": content[:40] + bytes(60) + content[100:],
        "cut": content[:45],
        "exchanged": files[1].read_bytes(),
    }
    files[0].unlink() if damage == "lost" else files[0].write_bytes(changed[damage])
    repairing(run)(writer, shuffle, MANY)
    check(writer, shuffle, expected_rows(COLUMNS, MANY), [0, 13, 60])


def test_columns_that_are_made_one_after_another_are_not_kept(writer: ArtifactWriter) -> None:
    shuffle, made = Shuffle("rows", 5, (Column("a", "int64"), Column("b", "float32", (2,))), 1), dict[str, Any]()

    def make(name: str) -> NDArray[Any]:
        assert all(array() is None for array in made.values())
        values = np.arange(5, dtype=np.int64) if name == "a" else np.ones((5, 2), np.float32)
        made[name] = weakref.ref(values)
        return values

    plan = ShufflePlan.unmerged(writer, shuffle, 1)
    plan.files.create()
    with writer.task("route") as output, shuffle.routed(output, plan.lane(0)) as out:
        out.add_columns(Index.of_positions(np.arange(5)), make)
    plan.files.publish([writer.recorded_of(["route"])["route"]])
    expected: Rows = {"position": np.arange(5), "a": np.arange(5), "b": np.ones((5, 2), np.float32)}
    check(writer, shuffle, expected, [0, 2, 5])


@pytest.mark.parametrize("permuted", [False, True])
def test_a_reader_holds_one_column_and_two_numbers_for_each_row(
    writer: ArtifactWriter, monkeypatch: pytest.MonkeyPatch, permuted: bool
) -> None:
    monkeypatch.setattr(runs, "BLOCK_BYTES", 1 << 18)
    num_rows, columns = 1 << 18, (Column("number", "int64"), Column("wide", "float32", (16,)))
    shuffle, position = Shuffle("rows", num_rows, columns, 1), np.arange(num_rows)
    plan = ShufflePlan.unmerged(writer, shuffle, 2)
    plan.files.create()
    if permuted:
        position = np.random.default_rng(0).permutation(num_rows)
    for task, own in enumerate(np.split(position, 2)):
        with writer.task(f"route/{task}") as output, shuffle.routed(output, plan.lane(task)) as out:
            rows: Rows = {"number": own, "wide": np.repeat(np.float32(np.sort(own)), 16).reshape(-1, 16)}
            out.add(Index.of_positions(np.sort(own)), rows)
    recorded = writer.recorded_of(["route/0", "route/1"])
    plan.files.publish([recorded[f"route/{task}"] for task in range(2)])
    with OpenFiles(writer.work) as files, tracing_arrays() as arrays:
        found = shuffle.rows(writer.work, files).read(0, num_rows)
        wide = found.column("wide")
        peak = arrays.peak()
    np.testing.assert_array_equal(wide[:, 3], np.arange(num_rows, dtype=np.float32))
    assert peak <= num_rows * (64 + 16) + (1 << 20)


@pytest.mark.parametrize("fan_in", [3, 4, 16])
def test_readers_of_any_positions_open_the_counted_files(
    writer: ArtifactWriter, monkeypatch: pytest.MonkeyPatch, fan_in: int
) -> None:
    writer = replace(writer, scratch=Scratch(sources=fan_in))
    shuffle = Shuffle("rows", 60, COLUMNS, 1)
    routed = [(range(60),)] * 11
    run(writer, shuffle, routed)
    for positions in ((0, 1), (7, 30), (19, 21), (0, 60), (5, 5)):
        opened = set()
        with OpenFiles(writer.work) as files:
            for section in shuffle.rows(writer.work, files).sections(*positions):
                opened.add(section.run.lane.path)
        assert len(opened) == plan_of(writer, shuffle, routed).opens(positions)
