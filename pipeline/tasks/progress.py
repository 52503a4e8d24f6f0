"""How far a phase is: an event for every part that is done, and a log line every few seconds.

The events go through the logger ``gnnloom.progress`` with a :class:`Progress` as their argument: at level
DEBUG, for a handler that draws a bar, and every ``INTERVAL`` seconds at level INFO, for a log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from gnnloom.storage.meters import peak_memory

LOGGER = logging.getLogger("gnnloom.pipeline")
PROGRESS = logging.getLogger("gnnloom.progress")

#: Seconds between lines.
INTERVAL: Final = 5.0


@dataclass(frozen=True)
class Done:
    """What a task returns: how much it did (edges, entries, ...) and the peak memory of its process so far."""

    count: int
    peak_memory: int = field(default_factory=peak_memory)


@dataclass(frozen=True)
class Progress:
    """Where a phase stands; its text is a log line.

    Attributes:
        count: of what ``unit`` names, done by ``done`` of ``parts`` parts in ``seconds``.
        peak_memory: of any process so far, in bytes; 0 where tasks do not tell.
    """

    phase: str
    done: int
    parts: int
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
        return self.seconds * (self.parts - self.done) / max(1, self.done)

    def __str__(self) -> str:
        text = f"{self.phase}: {self.done} of {self.parts} parts, {self.count:,} {self.unit}, {self.rate:,.0f}/s"
        if self.done < self.parts:
            text += f", {self.seconds_left:,.0f} s left"
        return text + (f", peak memory {self.peak_memory / (1 << 20):,.0f} MiB" if self.peak_memory else "")


def logged(phase: str, results: Iterable[int | Done], parts: int, unit: str = "edges") -> Iterator[int]:
    """Pass on the numbers of edges (or of what ``unit`` names) that tasks return, telling how far they are."""
    started = said = time.monotonic()
    total = peak = 0
    PROGRESS.debug("%s", Progress(phase, 0, parts, 0, unit, 0.0, 0))
    for done, result in enumerate(results, start=1):
        count = result.count if isinstance(result, Done) else result
        total, peak = total + count, max(peak, result.peak_memory if isinstance(result, Done) else 0)
        now = time.monotonic()
        state = Progress(phase, done, parts, total, unit, now - started, peak)
        due = now - said >= INTERVAL
        PROGRESS.log(logging.INFO if due else logging.DEBUG, "%s", state)
        said = now if due else said
        if done == parts and not due:
            LOGGER.info("%s", state)
        yield count


def wait_for(phase: str, results: Iterable[object], parts: int) -> None:
    """Wait until all results have come, telling how far they are."""
    for _ in logged(phase, (1 for _ in results), parts, "tasks"):
        pass


@contextmanager
def one_step(phase: str) -> Iterator[None]:
    """Tell that something has begun that cannot say how far it is, and when it is done."""
    started = time.monotonic()
    LOGGER.info("%s: begins", phase)
    PROGRESS.debug("%s", Progress(phase, 0, 1, 0, "tasks", 0.0, 0))
    yield
    done = Progress(phase, 1, 1, 1, "tasks", time.monotonic() - started, 0)
    PROGRESS.debug("%s", done)
    LOGGER.info("%s: done in %.1f s", phase, done.seconds)
