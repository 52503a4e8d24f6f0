"""Resources that this process and this thread have used so far, and the progress of a phase of work.

Progress is an event for every finished task, and a log line every few seconds. The events go through the logger
``gnnloom.progress`` with a :class:`Progress` as their argument: at level DEBUG, for a handler that draws a bar, and
every ``INTERVAL`` seconds at level INFO, for a log.
"""

from __future__ import annotations

import logging
import resource
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from gnnloom.storage.wording import counted

LOGGER = logging.getLogger("gnnloom.pipeline")
PROGRESS = logging.getLogger("gnnloom.progress")

#: Seconds between lines.
INTERVAL: Final = 5.0


def peak_memory() -> int:
    """Peak resident memory of this process so far, in bytes."""
    # ru_maxrss would also count what the parent process held when it started this one.
    peak = next((line for line in _system_lines("self/status") if line.startswith("VmHWM:")), None)
    return (int(peak.split()[1]) if peak else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * 1024


def bytes_from_device() -> int:
    """Bytes that this process has had read from storage devices so far, and not from the page cache; 0 if unknown."""
    return _counters("self").get("read_bytes", 0)


def bytes_moved() -> tuple[int, int]:
    """Bytes that this thread has read and written by system calls so far, without mapped files; (0, 0) if unknown."""
    # Of the thread, not of the process: other tasks run in other threads of the same worker.
    counters = _counters("thread-self")
    return counters.get("rchar", 0), counters.get("wchar", 0)


def _counters(whose: str) -> dict[str, int]:
    """The system's counters of what a process or thread has read and written; empty if there are none."""
    return {name: int(count) for name, count in (line.split(": ") for line in _system_lines(f"{whose}/io"))}


def _system_lines(name: str) -> list[str]:
    """The lines of a file below ``/proc``; none if it is not there."""
    try:
        # Read before and after every task, and pathlib takes as long as the system.
        with open(f"/proc/{name}", "rb", buffering=0) as file:
            return file.read().decode().splitlines()
    except OSError:
        return []


@dataclass(frozen=True)
class Done:
    """Result of a task: number of processed units, and the peak memory of its process so far in bytes."""

    count: int
    peak_memory: int = field(default_factory=peak_memory)


@dataclass(frozen=True)
class Progress:
    """State of a phase; ``str`` gives a log line.

    Attributes:
        phase: name of the phase.
        done: finished tasks.
        tasks: all tasks.
        count: units that the finished tasks processed.
        unit: what is counted: edges, entries, ...
        seconds: seconds since the phase began.
        peak_memory: largest peak of any process so far, in bytes; 0 if tasks do not report it.
    """

    phase: str
    done: int
    tasks: int
    count: int
    unit: str
    seconds: float
    peak_memory: int

    @property
    def rate(self) -> float:
        """Units per second."""
        return self.count / max(self.seconds, 1e-9)

    @property
    def seconds_left(self) -> float:
        return self.seconds * (self.tasks - self.done) / max(1, self.done)

    def __str__(self) -> str:
        text = f"{self.phase}: {self.done} of {counted(self.tasks, 'task')}"
        if self.unit != "tasks":
            text += f", {self.count:,} {self.unit}"
        text += f", {self.rate:,.0f}/s"
        if self.done < self.tasks:
            text += f", {self.seconds_left:,.0f} s left"
        return text + (f", peak memory {self.peak_memory / (1 << 20):,.0f} MiB" if self.peak_memory else "")


class ProgressMeter:
    """Reports the progress of a phase whose number of tasks is known."""

    def __init__(self, phase: str, tasks: int, unit: str = "tasks", *, logs_end: bool = True) -> None:
        """Begin the phase.

        Args:
            unit: what :meth:`advance` counts.
            logs_end: log a line at the end of the phase.
        """
        self._phase, self._tasks, self._unit, self._logs_end = phase, tasks, unit, logs_end
        self._started = self._said = time.monotonic()
        self._done = self._total = self._peak = 0
        PROGRESS.debug("%s", Progress(phase, 0, tasks, 0, unit, 0.0, 0))

    def advance(self, count: int = 1, peak_memory: int = 0) -> None:
        """Report that a task is done.

        Args:
            count: units that the task processed.
            peak_memory: peak memory of its process in bytes; 0 if unknown.
        """
        now, self._done, self._total = time.monotonic(), self._done + 1, self._total + count
        self._peak = max(self._peak, peak_memory)
        state = Progress(self._phase, self._done, self._tasks, self._total, self._unit, now - self._started, self._peak)
        due = now - self._said >= INTERVAL
        PROGRESS.log(logging.INFO if due else logging.DEBUG, "%s", state)
        self._said = now if due else self._said
        # The last state is always a log line: through PROGRESS if one is due, else through the pipeline's logger.
        if self._done == self._tasks and not due and self._logs_end:
            LOGGER.info("%s", state)


def logged(phase: str, results: Iterable[int | Done], tasks: int, unit: str = "edges") -> Iterator[int]:
    """Yield the numbers of units that tasks return, and report progress meanwhile.

    Args:
        phase: name of the phase.
        results: results of the tasks, as they finish.
        tasks: number of tasks.
        unit: what the numbers count.
    """
    meter = ProgressMeter(phase, tasks, unit)
    for result in results:
        count = result.count if isinstance(result, Done) else result
        meter.advance(count, result.peak_memory if isinstance(result, Done) else 0)
        yield count


@contextmanager
def one_step(phase: str) -> Iterator[None]:
    """Announce a step whose progress is unknown, and its end."""
    started = time.monotonic()
    LOGGER.info("%s: begins", phase)
    PROGRESS.debug("%s", Progress(phase, 0, 1, 0, "tasks", 0.0, 0))
    yield
    done = Progress(phase, 1, 1, 1, "tasks", time.monotonic() - started, 0)
    PROGRESS.debug("%s", done)
    LOGGER.info("%s: done in %.1f s", phase, done.seconds)
