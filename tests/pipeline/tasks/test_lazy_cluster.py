"""Local workers are started when they are worth it, and progress is told part by part."""

from __future__ import annotations

import logging
import os
import threading
import time

import pytest

from gnnloom.pipeline.tasks import progress
from gnnloom.pipeline.tasks.cluster import ClusterOptions, LazyCluster, ThreadedCluster, for_work, open_cluster
from gnnloom.pipeline.tasks.progress import Done, logged
from gnnloom.storage.errors import InputError


def process_of(_: int) -> int:
    return os.getpid()


def test_work_of_a_moment_is_done_by_threads_of_this_process() -> None:
    with open_cluster(ClusterOptions()) as cluster:
        assert isinstance(cluster, LazyCluster)
        cluster.workers = 2
        here = for_work(cluster, 0.1)
        assert isinstance(here, ThreadedCluster)
        assert (here.workers, here.memory) == (2, cluster.memory)
        assert set(here.map(process_of, range(3))) == {os.getpid()}
        assert for_work(cluster, 1000.0) is cluster


def test_threads_work_at_the_same_time_and_all_items_are_done() -> None:
    meeting = threading.Barrier(2, timeout=30)
    assert sorted(ThreadedCluster(2, 1 << 30).map(lambda item: meeting.wait() * 0 + item, range(6))) == list(range(6))


def test_a_failure_in_a_thread_cancels_what_was_not_begun() -> None:
    begun: list[int] = []

    def fail_at_three(item: int) -> int:
        begun.append(item)
        time.sleep(0.001)
        if item == 3:
            raise InputError("three")
        return item

    with pytest.raises(InputError, match="three"):
        list(ThreadedCluster(1, 1 << 30).map(fail_at_three, range(1000)))
    assert 3 in begun
    assert len(begun) < 1000


def test_longer_work_starts_the_workers_once() -> None:
    with open_cluster(ClusterOptions()) as cluster:
        assert os.getpid() not in set(cluster.map(process_of, range(8)))
        # They are there now: even a moment's work may use them.
        assert for_work(cluster, 0.1) is cluster
        assert os.getpid() not in set(cluster.map(process_of, range(8)))


def test_workers_that_were_asked_for_do_the_work() -> None:
    with open_cluster(ClusterOptions(workers=1)) as cluster:
        assert for_work(cluster, 0.0) is cluster


def test_every_part_is_an_event_and_the_last_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="gnnloom")
    results = [5, Done(7, peak_memory=3 << 20), Done(8, peak_memory=2 << 20)]
    assert list(logged("sort", results, 3)) == [5, 7, 8]
    events = [record.args[0] for record in caplog.records if record.name == "gnnloom.progress"]
    assert [(event.done, event.count, event.peak_memory >> 20) for event in events] == [
        (0, 0, 0),
        (1, 5, 0),
        (2, 12, 3),
        (3, 20, 3),
    ]
    (line,) = [record.getMessage() for record in caplog.records if record.name == "gnnloom.pipeline"]
    assert line.startswith("sort: 3 of 3 parts, 20 edges, ")
    assert line.endswith("/s, peak memory 3 MiB")


def test_a_long_phase_says_every_few_seconds_how_far_it_is(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, logger="gnnloom")
    seconds = iter(range(0, 1000, 2))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(seconds)))
    list(logged("scatter", [100] * 10, 10))
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "scatter: 3 of 10 parts, 300 edges, 50/s, 14 s left"
    assert len(lines) == 4
