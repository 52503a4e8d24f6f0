"""The shuffle: every row reaches the reader of its position, in the order in which it was routed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort import lanes, merge_levels
from gnnloom.pipeline.external_sort.lanes import Lane, OpenFiles
from gnnloom.pipeline.shuffle import merges, runs
from gnnloom.pipeline.shuffle.columns import Column, lengths_of
from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.tasks.run_missing import run_missing
from gnnloom.storage.errors import DamagedWorkError
from gnnloom.storage.format.artifact import ArtifactWriter

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


def run(writer: ArtifactWriter, shuffle: Shuffle, routed: Sequence[tuple[Sequence[int], ...]]) -> None:
    """Route and merge."""
    made = shuffle.create_lanes(writer.work, len(routed))
    tasks = [RouteTask(writer, shuffle, number, each, made.lane(number)) for number, each in enumerate(routed)]
    names = [task.name for task in tasks]
    usable = shuffle.is_usable(writer, names)
    records = run_missing("route", InProcessCluster(), writer, route, tasks, "rows", is_usable=usable)
    shuffle.merge("merge", writer, InProcessCluster(), records)


def expected_rows(columns: tuple[Column, ...], routed: Sequence[tuple[Sequence[int], ...]]) -> Rows:
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
    writer = ArtifactWriter(tmp_path / "graph" / "key", "graph", "key")
    writer.work.mkdir(parents=True)
    return writer


def positions_below(limit: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, limit - 1), max_size=12)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), num_positions=st.integers(1, 40), fan_in=st.integers(2, 4), unique=st.booleans())
def test_any_rows_reach_their_readers_in_order(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, num_positions: int, fan_in: int, unique: bool
) -> None:
    if unique:
        # As the vertices of a permutation: every position once.
        order = data.draw(st.permutations(range(num_positions)))
        cuts = sorted(data.draw(st.lists(st.integers(0, num_positions), max_size=6)))
        parts = [order[a:b] for a, b in zip([0, *cuts], [*cuts, num_positions], strict=True)]
        routed = [(tuple(part),) for part in parts]
    else:
        tasks = st.lists(st.lists(positions_below(num_positions), max_size=3).map(tuple), max_size=9)
        routed = data.draw(tasks)
    columns = data.draw(st.sampled_from([COLUMNS, COLUMNS[:1], COLUMNS[2:4], ()]))
    bounds = sorted({0, num_positions, *data.draw(st.lists(st.integers(0, num_positions), max_size=4))})
    writer = ArtifactWriter(tmp_path_factory.mktemp("a") / "graph" / "key", "graph", "key")
    writer.work.mkdir(parents=True)
    shuffle = Shuffle("some/rows", num_positions, columns, 1)
    with (
        patch.object(lanes, "PAGE_BYTES", 96),
        patch.object(lanes, "BLOCK_BYTES", 40),
        patch.object(runs, "BLOCK_BYTES", 64),
        patch.object(merge_levels, "FEW_SOURCES", fan_in),
        patch.object(merge_levels, "SOURCE_BYTES", 1 << 30),
        patch.object(merges, "_STEP_BYTES", data.draw(st.sampled_from([1, 100, 1000]))),
    ):
        run(writer, shuffle, routed)
        check(writer, shuffle, expected_rows(columns, routed), bounds)


MANY = [(list(range(number, 60, 7)), [number, number, 59]) for number in range(11)]


def test_what_was_merged_is_kept_and_what_it_was_merged_from_removed(
    writer: ArtifactWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_levels, "FEW_SOURCES", 3)
    shuffle = Shuffle("rows", 60, COLUMNS, 1)
    run(writer, shuffle, MANY)
    assert not (writer.work / "shuffle/rows/routed").exists()
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
