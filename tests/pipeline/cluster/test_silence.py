"""A worker that is stopped is named, killed and replaced; its tasks run elsewhere, each to its end once."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from gnnloom.pipeline.cluster import silence
from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.pipeline.cluster.processes import Guard, is_stopped
from gnnloom.pipeline.cluster.silence import Silence
from gnnloom.storage.errors import LaunchError


def test_only_a_worker_without_heartbeats_is_silent() -> None:
    watch = Silence(10, 4)
    assert watch.look({"a": 1.0, "b": 1.0}, 2) == []
    for step in range(4):
        assert watch.look({"a": 1.0, "b": 2.0 + step}, 2) == []
    # Once. Clocks that are set back are heartbeats as well.
    assert watch.look({"a": 1.0, "b": -5.0}, 2) == ["a"]
    assert watch.look({"a": 1.0, "b": 0.0}, 2) == []
    # It answers, and falls silent again.
    assert watch.look({"a": 3.0, "b": 0.5}, 2) == []
    assert [watch.look({"a": 3.0}, 4) for _ in range(3)] == [[], [], ["a"]]


def test_time_in_which_this_process_was_stopped_is_not_silence() -> None:
    watch = Silence(10, 4)
    watch.look({"a": 1.0}, 2)
    assert watch.look({"a": 1.0}, 3600) == []


def test_a_stopped_process_is_told_from_one_that_waits_or_has_ended() -> None:
    with psutil.Popen(["sleep", "60"]) as process:
        assert not is_stopped(process.pid)
        process.send_signal(signal.SIGSTOP)
        _until(lambda: is_stopped(process.pid))
        process.kill()
    assert not is_stopped(process.pid)


def _until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


def _work(folder: Path, number: int) -> int:
    """Stop the worker if this is the first attempt at the first task; note who has done the task."""
    stopped = folder / "stopped"
    if number == 0 and not stopped.exists():
        stopped.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
        # The other threads are stopped first, and then this one.
        time.sleep(1)
        # Were it continued, it would do the task a second time.
    with (folder / f"done-{number}").open("a") as file:
        file.write(f"{os.getpid()}\n")
    return number


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "LOOK_SECONDS", 0.5)
    monkeypatch.setattr(silence, "Silence", partial(Silence, 1.5))
    of = Guard.of
    monkeypatch.setattr(Guard, "of", lambda *sizes: replace(of(*sizes), stopped=3.0))


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_worker_that_is_stopped_while_it_starts_is_not_waited_for() -> None:
    def stop_first() -> None:
        _until(lambda: any("spawn_main" in " ".join(each.cmdline()) for each in psutil.Process().children()))
        workers = [each for each in psutil.Process().children() if "spawn_main" in " ".join(each.cmdline())]
        workers[0].send_signal(signal.SIGSTOP)

    thread = threading.Thread(target=stop_first)
    thread.start()
    try:
        with suppress(LaunchError), open_cluster(ClusterOptions(workers=1)) as cluster:
            assert list(cluster.map(abs, [-1])) == [1]
    finally:
        thread.join()


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 2])
def test_tasks_of_a_stopped_worker_run_elsewhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, workers: int
) -> None:
    with caplog.at_level(logging.WARNING, "gnnloom.pipeline"), open_cluster(ClusterOptions(workers=workers)) as cluster:
        assert sorted(cluster.map(partial(_work, tmp_path), range(4))) == [0, 1, 2, 3]
    pid = int((tmp_path / "stopped").read_text())
    # Too late: it is gone.
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    assert not psutil.pid_exists(pid)
    assert f"process {pid} on " in caplog.text
    done = [(tmp_path / f"done-{number}").read_text().split() for number in range(4)]
    assert [len(each) for each in done] == [1, 1, 1, 1]
    assert str(pid) not in done[0]
