"""A stage is a plan of phases, each a list of tasks: plans are run with measured sizes, or counted with stated ones.

A phase is data. Two functions read it: :func:`run` and :func:`count`; :func:`results` runs a phase that leaves no
records. The code that makes the phases of a stage does not depend on clusters, leftovers of earlier commands, or
output.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.errors import CorruptError, DamagedWorkError
from gnnloom.storage.format.artifact import ArtifactWriter, TaskRecord
from gnnloom.storage.meters import logged

LOGGER = logging.getLogger("gnnloom.pipeline")

#: Damaged files that one command makes again: a disk that damages more is not worth waiting for.
_MOST_REPAIRS: Final = 16
#: Bytes that the client and the scheduler of Dask hold for a task: 7.5 to 9.1 kB were measured.
TASK_BYTES: Final = 9 << 10

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Needs:
    """Expected work of a task.

    Attributes:
        reads, writes: bytes of uncompressed data.
        opens: temporary files that it opens to read.
        memory: bytes that it holds at most, in addition to the base memory of a worker.
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


@dataclass(frozen=True)
class Task:
    """Common fields of most tasks.

    Attributes:
        writer: writer of the artifact.
        name: name of the record.
        needs: expected work of the task.
    """

    writer: ArtifactWriter
    name: str
    needs: Needs


class WorkFiles:
    """Files that the tasks of one phase leave for later phases; compared by identity.

    The class itself has no files, only the records of the tasks.
    """

    def create(self) -> None:
        """Make the files, empty, before the first task runs."""

    def is_intact(self, record: TaskRecord) -> bool:  # noqa: ARG002 - a record is intact if it can be read
        """Whether the files that a task wrote are still there."""
        return True

    def publish(self, records: Sequence[TaskRecord]) -> None:
        """Check the output of all tasks, and list it for the tasks that read it."""

    def remove(self) -> None:
        """Remove the files of this and of earlier commands."""


@dataclass(frozen=True, eq=False)
class Phase:
    """Tasks that do not depend on each other.

    Attributes:
        name: for the log.
        function: runs one task, records it under its name, and returns how many of ``unit`` it processed; without
            records, it returns what the caller needs.
        tasks: in the order in which they should start.
        unit: what ``function`` counts.
        reads: temporary files that the tasks read.
        files: temporary files that the tasks write.
        makes_arrays: the tasks write arrays of the artifact.
        arrays: arrays of temporary files that a task reads, for the limit of opened files.
        repeats: how often it runs at most, if that depends on the data.
        at_most: whether the needs of the tasks depend on the data and are stated as upper bounds.
    """

    name: str
    function: Callable[[Any], Any]
    tasks: Sequence[PlannedTask]
    unit: str = "edges"
    reads: tuple[WorkFiles, ...] = ()
    files: tuple[WorkFiles, ...] = ()
    makes_arrays: bool = False
    arrays: int = 1
    repeats: int = 1
    at_most: bool = False


def run(phases: Sequence[Phase], cluster: Cluster, writer: ArtifactWriter, keep: Sequence[WorkFiles] = ()) -> list[str]:
    """Run the tasks that no earlier command has done; returns the names of all tasks that make arrays.

    Tasks whose files are lost run again if these files are needed: by tasks of a later phase that have to run, or, if
    no phase reads them, by the caller. Files are removed once they are no longer needed.

    Args:
        keep: files that the caller needs, even if no phase reads them.
    """
    pending = _pending(phases, writer, keep)
    # Files that are not needed were left by a command that was killed before it removed them.
    _remove_unread(pending, [files for phase in phases for files in phase.files])
    while pending:
        now = pending.pop(0)
        if now.missing:
            # The records of these tasks describe lost files.
            for name in writer.recorded_of(task.name for task in now.missing):
                writer.forget(name)
            for files in now.phase.files:
                files.create()
        for _ in logged(now.phase.name, cluster.map(now.phase.function, now.missing), len(now.missing), now.phase.unit):
            pass
        if now.needed:
            records = records_of(now.phase, writer)
            for files in now.needed:
                files.publish(records)
        _remove_unread(pending, [files for files in now.phase.reads if files not in keep])
    return [task.name for phase in phases if phase.makes_arrays for task in phase.tasks]


def records_of(phase: Phase, writer: ArtifactWriter) -> list[TaskRecord]:
    """The records of all tasks of a phase, in their order, once they have run in this or an earlier command.

    Raises:
        KeyError: the function of the phase has not recorded a fact.
    """
    recorded = writer.recorded_of(task.name for task in phase.tasks)
    return [recorded[task.name] for task in phase.tasks]


def missing_tasks(phase: Phase, writer: ArtifactWriter, needed: Sequence[WorkFiles] = ()) -> list[PlannedTask]:
    """The tasks of a phase without a record, or whose part of the needed files is lost; in their order."""
    recorded = writer.recorded_of(task.name for task in phase.tasks)
    return [
        task
        for task in phase.tasks
        if task.name not in recorded or not all(files.is_intact(recorded[task.name]) for files in needed)
    ]


def results(phase: Phase, cluster: Cluster) -> Iterator[Any]:
    """Run all tasks of a phase that leaves no records; yields what they return, in the order in which they finish.

    For many short steps that can all run again after a kill.
    """
    return cluster.map(phase.function, phase.tasks)


@dataclass(frozen=True, eq=False)
class _Pending:
    """A phase whose tasks or files are needed.

    Attributes:
        needed: the needed files.
        missing: tasks that have to run.
        wanted: by the caller.
    """

    phase: Phase
    needed: Sequence[WorkFiles]
    missing: Sequence[PlannedTask]
    wanted: Sequence[WorkFiles]


def _pending(phases: Sequence[Phase], writer: ArtifactWriter, keep: Sequence[WorkFiles]) -> list[_Pending]:
    """Remaining work, in order."""
    pending: list[_Pending] = []
    read = {id(files) for phase in phases for files in phase.reads} - set(map(id, keep))
    for phase in reversed(phases):
        wanted = [files for files in phase.files if id(files) not in read]
        needed = [files for files in phase.files if files in wanted or _is_read(files, pending)]
        if needed or phase.makes_arrays:
            missing = missing_tasks(phase, writer, needed)
            pending.insert(0, _Pending(phase, needed, missing, wanted))
    return pending


def _is_read(files: WorkFiles, pending: Sequence[_Pending]) -> bool:
    """Whether tasks that have to run read these files."""
    return any(each.missing and any(files is read for read in each.phase.reads) for each in pending)


def _remove_unread(pending: Sequence[_Pending], candidates: Sequence[WorkFiles]) -> None:
    for files in candidates:
        if not any(files in each.wanted for each in pending) and not _is_read(files, pending):
            files.remove()


@dataclass(frozen=True)
class PhaseCount:
    """Counts of one phase of a stage.

    Attributes:
        phase: name of the phase.
        tasks: number of tasks; each is described to the scheduler in a few hundred bytes.
        opens: files that tasks open to read, summed over all tasks, except chunks of stored arrays.
        most_opens: files that one task opens at most.
        arrays: arrays that a task reads.
        bytes_read, bytes_written: by all tasks, uncompressed.
        largest_task: bytes that one task reads at most.
        most_memory: bytes that one task holds at most.
        repeats: how often the phase runs at most; the other counts are for one time.
    """

    phase: str
    tasks: int
    opens: int = 0
    most_opens: int = 0
    arrays: int = 1
    bytes_read: int = 0
    bytes_written: int = 0
    largest_task: int = 0
    most_memory: int = 0
    repeats: int = 1


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
    """Peak bytes of temporary files, if nothing was done before; files are removed once they are no longer needed."""
    held: list[tuple[Phase, int]] = []
    most = 0
    for number, phase in enumerate(phases):
        held.append((phase, 0 if phase.makes_arrays else sum(task.needs.writes for task in phase.tasks)))
        most = max(most, sum(num_bytes for _, num_bytes in held))
        read = {id(files) for later in phases[number + 1 :] for files in later.reads}
        # A phase with several sets of files is held until all are read.
        held = [(each, size) for each, size in held if not each.files or any(id(files) in read for files in each.files)]
    return most


def client_bytes(phases: Iterable[PhaseCount]) -> int:
    """Bytes that the client holds for the tasks of the largest phase, if the client is also the scheduler."""
    return TASK_BYTES * max((phase.tasks for phase in phases), default=0)


def total_tasks(phases: Iterable[PhaseCount]) -> int:
    """Number of tasks of all phases, as often as they run."""
    return sum(phase.tasks * phase.repeats for phase in phases)


def repairing(stage: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Run a stage again, without the file, if a temporary file is damaged.

    A stage makes missing files only, so a file that is removed is made again, and nothing else.

    Raises:
        CorruptError: files are damaged again and again.
    """

    @wraps(stage)
    def repaired(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        for _ in range(_MOST_REPAIRS):
            try:
                return stage(*args, **kwargs)
            except DamagedWorkError as error:
                LOGGER.warning("%s; the file is removed and made again", error)
                error.path.unlink(missing_ok=True)
                last = error
        raise CorruptError(
            f"{last.path.parent}: temporary files there are damaged again and again; check the disk, remove unfinished"
            " artifacts with `gnnloom catalog gc`, and run the command again"
        ) from last

    return repaired
