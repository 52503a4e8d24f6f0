"""The progress of a phase: an event for every finished task, and a log line every few seconds.

The events go through the logger ``gnnloom.progress`` with a :class:`Progress` as their argument: at level DEBUG, for a
handler that draws a bar, and every ``INTERVAL`` seconds at level INFO, for a log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from gnnloom.storage.meters import peak_memory
from gnnloom.storage.wording import counted

LOGGER = logging.getLogger("gnnloom.pipeline")
PROGRESS = logging.getLogger("gnnloom.progress")

#: Seconds between lines.
INTERVAL: Final = 5.0


@dataclass(frozen=True)
class Done:
    """What a task returns: how many units it processed, and the peak memory of its process so far in bytes."""

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


def logged(phase: str, results: Iterable[int | Done], tasks: int, unit: str = "edges") -> Iterator[int]:
    """Yield the numbers of units that tasks return, and report progress meanwhile.

    Args:
        phase: name of the phase.
        results: results of the tasks, as they finish.
        tasks: number of tasks.
        unit: what the numbers count.
    """
    started = said = time.monotonic()
    total = peak = 0
    PROGRESS.debug("%s", Progress(phase, 0, tasks, 0, unit, 0.0, 0))
    for done, result in enumerate(results, start=1):
        count = result.count if isinstance(result, Done) else result
        total, peak = total + count, max(peak, result.peak_memory if isinstance(result, Done) else 0)
        now = time.monotonic()
        state = Progress(phase, done, tasks, total, unit, now - started, peak)
        due = now - said >= INTERVAL
        PROGRESS.log(logging.INFO if due else logging.DEBUG, "%s", state)
        said = now if due else said
        # The last state is always a log line: through PROGRESS if one is due, else through the pipeline's logger.
        if done == tasks and not due:
            LOGGER.info("%s", state)
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
