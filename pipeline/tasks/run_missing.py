"""The loop of every stage: run the tasks that left no usable record, and return the records of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.progress import Done, logged
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord


class NamedTask(Protocol):
    """A small, picklable description of one task; ``name`` is the name of its record."""

    @property
    def name(self) -> str: ...


Task = TypeVar("Task", bound=NamedTask)


def run_missing(
    phase: str,
    cluster: Cluster,
    writer: ArtifactWriter,
    function: Callable[[Task], int | Done],
    tasks: Sequence[Task],
    unit: str = "edges",
    *,
    is_usable: Callable[[Task, TaskRecord], bool] = lambda _, __: True,
) -> list[TaskRecord]:
    """Run the tasks that have no usable record, reporting progress; return the records of all, in order.

    Args:
        phase: name of the phase in the log.
        function: runs one task, records it, and returns how many of ``unit`` it processed.
        tasks: all tasks of the phase, in the order in which they should start.
        is_usable: whether a record that an earlier run left still holds for its task.

    Raises:
        KeyError: ``function`` returned without recording its task.
    """
    recorded = writer.recorded()
    missing = [task for task in tasks if task.name not in recorded or not is_usable(task, recorded[task.name])]
    for _ in logged(phase, cluster.map(function, missing), len(missing), unit):
        pass
    recorded = writer.recorded()
    return [recorded[task.name] for task in tasks]
