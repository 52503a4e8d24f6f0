"""Nobody waits for the tasks of threads that are interrupted; a task that fails lets the others end."""

from __future__ import annotations

import threading
import time

import pytest

from gnnloom.pipeline.tasks.cluster import ThreadedCluster


def test_tasks_in_threads_end_with_what_waits_for_them() -> None:
    begun, ended = threading.Event(), []

    def task(number: int) -> int:
        if number == 0:
            begun.wait()
            return number
        begun.set()
        try:
            while True:
                time.sleep(0.001)
        except Exception:  # noqa: BLE001 - what a task may do
            return number
        finally:
            ended.append(number)

    results = ThreadedCluster(2, 1 << 30).map(task, range(5))
    assert next(iter(results)) == 0
    results.close()  # type: ignore[attr-defined] # as Ctrl-C while the next result is waited for
    assert ended
    assert set(ended) <= {1, 2}


def test_a_task_that_fails_lets_those_that_run_end() -> None:
    begun, ended = threading.Event(), []

    def task(number: int) -> None:
        if number == 0:
            begun.wait()
            raise ValueError("failed")
        begun.set()
        time.sleep(0.2)
        ended.append(number)

    with pytest.raises(ValueError, match="failed"):
        list(ThreadedCluster(2, 1 << 30).map(task, range(2)))
    assert ended == [1]
