"""The loop of every stage: run the tasks that left no usable record, and return the records of all tasks."""

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
Item = TypeVar("Item")


def run_missing(
    phase: str,
    cluster: Cluster,
    writer: ArtifactWriter,
    function: Callable[[Task], int | Done],
    tasks: Sequence[Task],
    unit: str = "edges",
    *,
    is_usable: Callable[[Task, TaskRecord], bool] = lambda _, __: True,
    prepare: Callable[[Task], object] | None = None,
) -> list[TaskRecord]:
    """Run the tasks that have no usable record, reporting progress; return the records of all, in the order given.

    A stage that was killed calls this again with the same tasks, and only those that left no record run.

    Args:
        phase: name of the phase in the log.
        cluster: where the tasks run.
        writer: the artifact whose work folder holds the records.
        function: runs one task, records it under the task's name, and returns how many of ``unit`` it processed.
        tasks: all tasks of the phase, in the order in which they should start.
        unit: what ``function`` counts, for the log.
        is_usable: whether a record that an earlier run left still holds for its task.
        prepare: called here for every task that will run, before any of them starts; for example to remove what a
            killed task left behind.

    Raises:
        KeyError: ``function`` returned without recording its task.
    """
    missing = missing_tasks(writer, tasks, is_usable=is_usable)
    if prepare is not None:
        for task in missing:
            prepare(task)
    run_all(phase, cluster, function, missing, unit)
    # The records on disk, not the results of the tasks: a task of an earlier run has left a record only.
    recorded = writer.recorded_of(task.name for task in tasks)
    return [recorded[task.name] for task in tasks]


def missing_tasks(
    writer: ArtifactWriter,
    tasks: Sequence[Task],
    *,
    is_usable: Callable[[Task, TaskRecord], bool] = lambda _, __: True,
) -> list[Task]:
    """The tasks without a usable record, in the order given."""
    recorded = writer.recorded_of(task.name for task in tasks)
    return [task for task in tasks if task.name not in recorded or not is_usable(task, recorded[task.name])]


def run_all(
    phase: str, cluster: Cluster, function: Callable[[Item], int | Done], tasks: Sequence[Item], unit: str = "edges"
) -> None:
    """Run all tasks, reporting progress; for tasks that leave no record because running them twice is harmless."""
    for _ in logged(phase, cluster.map(function, tasks), len(tasks), unit):
        pass
