"""Every finished task is an event, and the log gets a line every few seconds."""

from __future__ import annotations

import logging

import pytest

from gnnloom.storage.meters import PROGRESS, Done, Progress, logged, one_step


def states(caplog: pytest.LogCaptureFixture) -> list[Progress]:
    records = [record for record in caplog.records if record.name == PROGRESS.name]
    found = [record.args[0] for record in records if isinstance(record.args, tuple) and record.args]
    return [state for state in found if isinstance(state, Progress)]


def test_every_task_is_an_event_and_the_last_one_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="gnnloom")
    results: list[int | Done] = [5, Done(7, peak_memory=3 << 20), Done(8, peak_memory=2 << 20)]
    assert list(logged("sort", results, 3)) == [5, 7, 8]
    assert [(state.done, state.count, state.peak_memory >> 20) for state in states(caplog)] == [
        (0, 0, 0),
        (1, 5, 0),
        (2, 12, 3),
        (3, 20, 3),
    ]
    (line,) = [record.getMessage() for record in caplog.records if record.name == "gnnloom.pipeline"]
    assert line.startswith("sort: 3 of 3 tasks, 20 edges, ")
    assert line.endswith("/s, peak memory 3 MiB")


def test_a_long_phase_logs_its_progress_every_few_seconds(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, logger="gnnloom")
    seconds = iter(range(0, 1000, 2))
    monkeypatch.setattr("time.monotonic", lambda: float(next(seconds)))
    list(logged("scatter", [100] * 10, 10))
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "scatter: 3 of 10 tasks, 300 edges, 50/s, 14 s left"
    assert len(lines) == 4


def test_a_phase_that_counts_tasks_names_their_number_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="gnnloom")
    list(logged("write", [1, 1], 2, "tasks"))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("write: 2 of 2 tasks, ")
    assert line.count("tasks") == 1


def test_a_step_of_unknown_progress_is_announced_and_ended(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="gnnloom")
    with one_step("partition"):
        assert [(state.done, state.tasks) for state in states(caplog)] == [(0, 1)]
    assert [(state.done, state.tasks) for state in states(caplog)] == [(0, 1), (1, 1)]
    lines = [record.getMessage() for record in caplog.records if record.name == "gnnloom.pipeline"]
    assert lines == ["partition: begins", "partition: done in 0.0 s"]
