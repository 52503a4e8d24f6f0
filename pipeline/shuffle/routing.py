"""Runs the phases of one or more shuffles: tasks that route rows, and then the merges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from gnnloom.pipeline.shuffle.shuffle import Shuffle
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.run_missing import Task, run_missing
from gnnloom.storage.format.artifact import ArtifactWriter


def route_and_merge(
    phases: tuple[str, str],
    writer: ArtifactWriter,
    cluster: Cluster,
    function: Callable[[Task], int],
    routed: Mapping[Shuffle, Sequence[Task]],
    unit: str,
) -> None:
    """Route rows and merge them, except for what an earlier command has left.

    Args:
        phases: names of both phases, for the log.
        function: runs a task that routes.
        routed: the tasks of each shuffle, all of which run in one phase; rows of one position keep their order.
        unit: what ``function`` counts, for the log.
    """
    usable = {}
    for shuffle, tasks in routed.items():
        names = [task.name for task in tasks]
        usable |= dict.fromkeys(names, shuffle.is_usable(writer, names))
    records = iter(
        run_missing(
            phases[0],
            cluster,
            writer,
            function,
            [task for tasks in routed.values() for task in tasks],
            unit,
            is_usable=lambda task, record: usable[task.name](task, record),
        )
    )
    for shuffle, tasks in routed.items():
        shuffle.merge(phases[1], writer, cluster, list(islice(records, len(tasks))))
