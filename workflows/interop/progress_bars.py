"""Bars for the progress of phases, in terminals and notebooks."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console  # noqa: TID251 - scripts and notebooks have no screen of the command line
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from gnnloom.storage.meters import PROGRESS, Progress
from gnnloom.workflows.formatting import readable_bytes


def new_bars(stderr: Console, figure: str) -> Bars:
    """Bars with the name of each task on the left, and on the right one of its fields, such as its speed."""
    return Bars(
        TextColumn("{task.description:>20}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn(f"{{task.fields[{figure}]}}", markup=False),
        console=stderr,
    )


class BarHandler(logging.Handler):
    """Draws a bar for each phase on standard error."""

    def __init__(self, stderr: Console) -> None:
        super().__init__(logging.DEBUG)
        self._bars = new_bars(stderr, "speed")
        self._tasks: dict[str, TaskID] = {}

    def emit(self, record: logging.LogRecord) -> None:
        state = record.args[0] if isinstance(record.args, tuple) and record.args else None
        if not isinstance(state, Progress):
            return
        # Started with the first phase, so that a command without phases draws nothing.
        if not self._tasks:
            self._bars.start()
        if state.phase not in self._tasks:
            self._tasks[state.phase] = self._bars.add_task(state.phase, total=state.tasks, speed="")
        self._bars.update(self._tasks[state.phase], completed=state.done, total=state.tasks, speed=_speed(state))

    def close(self) -> None:
        self._bars.stop()
        super().close()


def _speed(state: Progress) -> str:
    texts = []
    if state.count and state.unit != "tasks":
        texts.append(f"{state.rate / 1e6:,.1f} M {state.unit}/s")
    if state.peak_memory:
        texts.append(f"peak {readable_bytes(state.peak_memory)}")
    return ", ".join(texts)


@contextmanager
def phases_shown(bars: BarHandler | None) -> Iterator[None]:
    """Show the progress of phases that run inside the block: as bars, or as lines of the log.

    Args:
        bars: draws the bars, and is closed at the end; None for a log.
    """
    before = PROGRESS.level, PROGRESS.propagate
    # A bar follows every finished task, at DEBUG; a log has a line every few seconds, at INFO.
    PROGRESS.setLevel(logging.DEBUG if bars else logging.INFO)
    # Bars replace the log lines of phases.
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
def progress() -> Iterator[None]:
    """Show a bar for each phase of stages, training runs and predictions inside the block.

    In a notebook, the bars are below the cell; elsewhere they are on standard error.

    Examples:
        >>> with gnnloom.progress():
        ...     calls = gnnloom.ingest("calls", "calls.csv", ids="compact")
    """
    in_notebook = "ipykernel" in sys.modules
    with phases_shown(BarHandler(Console(stderr=not in_notebook, force_jupyter=in_notebook or None))):
        yield
