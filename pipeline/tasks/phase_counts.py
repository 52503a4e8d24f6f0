"""What the tasks of a phase will do, counted without running them.

A plan that a phase runs with makes these counts, so they cannot differ from what runs. ``tests/scale`` compares them
with limits for graphs that no machine at hand can hold, and with real runs of small ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


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
        repeats: how often the phase runs at most; the other counts are those of one time.
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


#: Bytes that the client and the scheduler of Dask hold for a task: 7.5 to 9.1 kB were measured.
TASK_BYTES = 9 << 10


def client_bytes(phases: Iterable[PhaseCount]) -> int:
    """Bytes that the client holds for the tasks of the largest phase, if it is the scheduler as well."""
    return TASK_BYTES * max((phase.tasks for phase in phases), default=0)


def total_tasks(phases: Iterable[PhaseCount]) -> int:
    """Number of tasks of all phases, as often as they run."""
    return sum(phase.tasks * phase.repeats for phase in phases)
