"""Stages that are stopped between two tasks, as by a kill, and run again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pytest

from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage.disk.work_folder import BESIDE, Scratch

Result = TypeVar("Result")

#: Numbers of workers, and of tasks after which a stage is stopped: every third stop is in every phase of a stage, and
#: all stops are in the long tests.
workers_and_tasks = pytest.mark.parametrize(("workers", "tasks"), [(3, 3), pytest.param(2, 1, marks=pytest.mark.long)])


class StoppedError(KeyboardInterrupt):
    """A stage was stopped. No handler of errors takes it for one of the stage's own."""


class StoppingCluster(InProcessCluster):
    """Runs some tasks and stops before the next one. What these tasks left stays, as after a kill.

    Attributes:
        ran: name of the function and name of each task that ran; empty for tasks that leave no record.
    """

    def __init__(self, tasks: int | None = None, scratch: Scratch = BESIDE) -> None:
        """``tasks`` is the number of tasks to run; None runs all."""
        super().__init__(scratch=scratch)
        self._tasks = tasks
        self.ran: list[tuple[str, str]] = []

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        for item in items:
            if len(self.ran) == self._tasks:
                raise StoppedError
            self.ran.append((function.__name__, getattr(item, "name", "")))
            yield function(item)


def run_in_steps(
    stage: Callable[[InProcessCluster], Result], tasks: int, most: int = 500, scratch: Scratch = BESIDE
) -> tuple[Result, list[tuple[str, str]]]:
    """Run a stage until it ends, stopped after every ``tasks`` tasks.

    Args:
        most: steps after which a stage is taken for one that never ends.
        scratch: sizes of temporary files.

    Returns:
        What the stage returned, and the function and name of every task that ran.
    """
    ran: list[tuple[str, str]] = []
    for _ in range(most):
        cluster = StoppingCluster(tasks, scratch)
        try:
            return stage(cluster), ran + cluster.ran
        except StoppedError:
            ran += cluster.ran
    raise AssertionError(f"the stage has not ended after {most} steps of {tasks} tasks")
