"""Progress of the pipeline's phases and of trainings: bars on a terminal, a line every few seconds in a log."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars

from gnnloom.pipeline.tasks.progress import INTERVAL, PROGRESS, Progress
from gnnloom.storage.runs.run import Run
from gnnloom.workflows.cli.output import readable_bytes

#: Seconds between looks at how far a training is.
_LOOK_SECONDS = 0.5


class BarHandler(logging.Handler):
    """Draws a bar for each phase on standard error."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.DEBUG)
        columns = (
            TextColumn("{task.description:>20}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[speed]}"),
        )
        self._bars = Bars(*columns, console=console)
        self._tasks: dict[str, TaskID] = {}

    def emit(self, record: logging.LogRecord) -> None:
        state = record.args[0] if isinstance(record.args, tuple) and record.args else None
        if not isinstance(state, Progress):
            return
        if not self._tasks:
            self._bars.start()
        if state.phase not in self._tasks:
            self._tasks[state.phase] = self._bars.add_task(state.phase, total=state.tasks, speed="")
        self._bars.update(self._tasks[state.phase], completed=state.done, total=state.tasks, speed=_speed(state))

    def close(self) -> None:
        self._bars.stop()
        super().close()


def _speed(state: Progress) -> str:
    said = []
    if state.count and state.unit != "tasks":
        said.append(f"{state.rate / 1e6:,.1f} M {state.unit}/s")
    if state.peak_memory:
        said.append(f"peak {readable_bytes(state.peak_memory)}")
    return ", ".join(said)


@contextmanager
def shown_progress() -> Iterator[None]:
    """Show how far the phases are that run inside the ``with`` block."""
    bars = BarHandler(Console(stderr=True)) if sys.stderr.isatty() else None
    before = PROGRESS.level, PROGRESS.propagate
    PROGRESS.setLevel(logging.DEBUG if bars else logging.INFO)
    PROGRESS.propagate = bars is None
    if bars:
        PROGRESS.addHandler(bars)
    try:
        yield
    finally:
        PROGRESS.setLevel(before[0])
        PROGRESS.propagate = before[1]
        if bars:
            PROGRESS.removeHandler(bars)
            bars.close()


@contextmanager
def shown_epochs(run: Run, epochs: int) -> Iterator[None]:
    """Show how many epochs of a training are done that runs inside the ``with`` block."""
    ended = threading.Event()
    with _epoch_teller(epochs) as tell:
        watch = threading.Thread(target=_watch_epochs, args=(run, ended, tell), daemon=True)
        watch.start()
        try:
            yield
        finally:
            ended.set()
            watch.join()


@contextmanager
def _epoch_teller(epochs: int) -> Iterator[Callable[[int], None]]:
    """What shows a number of finished epochs: a bar on a terminal; else lines, unless the training has its own."""
    if sys.stderr.isatty():
        columns = (TextColumn("{task.description:>20}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Bars(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bars:
            task = bars.add_task("epochs", total=epochs)
            yield lambda done: bars.update(task, completed=done)
    elif logging.getLogger("gnnloom.trainer").isEnabledFor(logging.INFO):
        yield _say_nothing
    else:
        yield _LineTeller(epochs)


def _say_nothing(done: int) -> None:
    """The training's own lines tell enough."""
    del done


class _LineTeller:
    """Says how many epochs are done, every few seconds."""

    def __init__(self, epochs: int) -> None:
        self._epochs, self._said = epochs, time.monotonic()

    def __call__(self, done: int) -> None:
        if time.monotonic() - self._said >= INTERVAL:
            self._said = time.monotonic()
            sys.stderr.write(f"{done} of {self._epochs} epochs\n")


def _watch_epochs(run: Run, ended: threading.Event, tell: Callable[[int], None]) -> None:
    """Look how many epochs are done, until the training ends."""
    begun = time.time()
    while not ended.wait(_LOOK_SECONDS):
        tell(run.epochs_since(begun))
    tell(run.epochs_since(begun))
