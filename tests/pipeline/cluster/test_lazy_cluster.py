"""Local workers start when the work is worth it."""

from __future__ import annotations

import os
import threading
import time

import pytest

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.pipeline.tasks.cluster import LazyCluster, ThreadedCluster, for_work
from gnnloom.storage.errors import InputError


def process_of(_: int) -> int:
    return os.getpid()


def test_short_work_is_done_by_threads_of_this_process() -> None:
    with open_cluster(ClusterOptions()) as cluster:
        assert isinstance(cluster, LazyCluster)
        cluster.workers = 2
        here = for_work(cluster, 0.1)
        assert isinstance(here, ThreadedCluster)
        assert (here.workers, here.memory) == (2, cluster.memory)
        assert set(here.map(process_of, range(3))) == {os.getpid()}
        assert for_work(cluster, 1000.0) is cluster


def test_threads_work_at_the_same_time_and_finish_all_items() -> None:
    meeting = threading.Barrier(2, timeout=30)
    assert sorted(ThreadedCluster(2, 1 << 30).map(lambda item: meeting.wait() * 0 + item, range(6))) == list(range(6))


def test_a_failure_in_a_thread_cancels_items_that_have_not_started() -> None:
    started: list[int] = []

    def fail_at_three(item: int) -> int:
        started.append(item)
        time.sleep(0.001)
        if item == 3:
            raise InputError("three")
        return item

    with pytest.raises(InputError, match="three"):
        list(ThreadedCluster(1, 1 << 30).map(fail_at_three, range(1000)))
    assert 3 in started
    assert len(started) < 1000


@pytest.mark.slow
def test_long_work_starts_the_workers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnloom.pipeline.cluster.open_cluster.available_cores", lambda: 1)
    with open_cluster(ClusterOptions()) as cluster:
        assert os.getpid() not in set(cluster.map(process_of, range(8)))
        # They run now, so even short work may use them.
        assert for_work(cluster, 0.1) is cluster
        assert os.getpid() not in set(cluster.map(process_of, range(8)))


def test_no_tasks_start_no_workers() -> None:
    with open_cluster(ClusterOptions()) as cluster:
        assert list(cluster.map(process_of, [])) == []
        assert isinstance(cluster, LazyCluster)
        cluster.workers = 1
        assert for_work(cluster, 0.1) is not cluster
