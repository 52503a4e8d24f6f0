"""A stage is a plan: phases, each a list of tasks, which are run with measured sizes or counted with stated ones.

A phase is data. Exactly two functions read it: :func:`run` and :func:`count`. Whoever makes the phases of a stage knows
nothing of clusters, of what an earlier command left, or of what is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.pipeline.tasks.phase_counts import PhaseCount
from gnnloom.pipeline.tasks.progress import Done
from gnnloom.pipeline.tasks.run_missing import missing_tasks, run_all
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord


@dataclass(frozen=True)
class Needs:
    """What a task is expected to do.

    Attributes:
        reads, writes: bytes of uncompressed data.
        opens: temporary files that it opens to read.
        memory: bytes that it holds at most, besides what every worker holds.
    """

    reads: int = 0
    writes: int = 0
    opens: int = 0
    memory: int = 0


class PlannedTask(Protocol):
    """A small, picklable description of one task."""

    @property
    def name(self) -> str:
        """Name of its record."""
        ...

    @property
    def needs(self) -> Needs: ...


class WorkFiles(Protocol):
    """The temporary files that the tasks of a phase write, for those of later phases."""

    def create(self) -> None:
        """Make the files, empty, before the first task runs."""
        ...

    def is_intact(self, record: TaskRecord) -> bool:
        """Whether what a task wrote is still there."""
        ...

    def publish(self, records: Sequence[TaskRecord]) -> None:
        """List what all tasks wrote, for those that read it."""
        ...

    def remove(self) -> None:
        """Remove the files of this and of earlier commands."""
        ...


@dataclass(frozen=True, eq=False)
class Phase:
    """Tasks that do not depend on each other.

    Attributes:
        name: for the log.
        function: runs one task, records it under its name, and returns how many of ``unit`` it processed.
        tasks: in the order in which they should start.
        unit: what ``function`` counts.
        reads: phases whose temporary files the tasks read.
        files: temporary files that the tasks write.
        makes_arrays: the tasks write arrays of the artifact.
        arrays: arrays of temporary files that a task reads, for the limit of opened files.
        repeats: how often it runs at most, if that depends on the data.
    """

    name: str
    function: Callable[[Any], int | Done]
    tasks: Sequence[PlannedTask]
    unit: str = "edges"
    reads: tuple[Phase, ...] = ()
    files: tuple[WorkFiles, ...] = ()
    makes_arrays: bool = False
    arrays: int = 1
    repeats: int = 1


def run(phases: Sequence[Phase], cluster: Cluster, writer: ArtifactWriter) -> list[str]:
    """Run what no earlier command has done; returns the names of all tasks that make arrays.

    Tasks whose files are lost run again if these files are needed: by tasks of a later phase that have to run, or, if
    no other phase reads them, by the caller. Files are removed when they are not needed any more.
    """
    missing = _missing(phases, writer)
    for phase in phases:
        # Left by a command that was killed before it removed them.
        if phase not in missing:
            _remove(phase)
    waiting = list(missing)
    for phase in phases:
        if phase not in missing:
            continue
        if missing[phase]:
            for files in phase.files:
                files.create()
        run_all(phase.name, cluster, phase.function, missing[phase], phase.unit)
        waiting.remove(phase)
        if phase.files:
            # The records on disk, not the results of the tasks: a task of an earlier command has left a record only.
            recorded = writer.recorded_of(task.name for task in phase.tasks)
            for files in phase.files:
                files.publish([recorded[task.name] for task in phase.tasks])
        for before in phase.reads:
            if not any(before in each.reads and missing[each] for each in waiting):
                _remove(before)
    return [task.name for phase in phases if phase.makes_arrays for task in phase.tasks]


def _missing(phases: Sequence[Phase], writer: ArtifactWriter) -> dict[Phase, list[PlannedTask]]:
    """The phases that make arrays or whose files are needed, each with its tasks that have to run."""
    found: dict[Phase, list[PlannedTask]] = {}
    for phase in reversed(phases):
        readers = [later for later in phases if phase in later.reads]
        is_needed = any(found.get(later) for later in readers) if readers else bool(phase.files)
        if is_needed or phase.makes_arrays:
            files = phase.files if is_needed else ()
            found[phase] = missing_tasks(writer, phase.tasks, is_usable=_intact(files))
    return dict(reversed(found.items()))


def _intact(files: Sequence[WorkFiles]) -> Callable[[object, TaskRecord], bool]:
    return lambda _, record: all(each.is_intact(record) for each in files)


def _remove(phase: Phase) -> None:
    for files in phase.files:
        files.remove()


def count(phases: Sequence[Phase]) -> list[PhaseCount]:
    """Count what the tasks will do, without running them; phases without tasks are left out."""
    return [_counted(phase) for phase in phases if phase.tasks]


def _counted(phase: Phase) -> PhaseCount:
    needs = [task.needs for task in phase.tasks]
    return PhaseCount(
        phase=phase.name,
        tasks=len(needs),
        opens=sum(each.opens for each in needs),
        most_opens=max(each.opens for each in needs),
        arrays=phase.arrays,
        bytes_read=sum(each.reads for each in needs),
        bytes_written=sum(each.writes for each in needs),
        largest_task=max(each.reads for each in needs),
        most_memory=max(each.memory for each in needs),
        repeats=phase.repeats,
    )


def temporary_bytes(phases: Sequence[Phase]) -> int:
    """Bytes of temporary files at their peak, if nothing was done before: what is read last is removed then."""
    held: dict[Phase, int] = {}
    most = 0
    for number, phase in enumerate(phases):
        held[phase] = 0 if phase.makes_arrays else sum(task.needs.writes for task in phase.tasks)
        most = max(most, sum(held.values()))
        for before in phase.reads:
            if not any(before in later.reads for later in phases[number + 1 :]):
                held[before] = 0
    return most
