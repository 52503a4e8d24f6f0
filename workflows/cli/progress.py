"""Progress of the pipeline's phases: a bar on a terminal, a line every few seconds in a log."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from gnnloom.pipeline.progress import PROGRESS, Progress
from gnnloom.workflows.cli.output import readable_bytes


class BarHandler(logging.Handler):
    """Draws a bar for each phase on standard error."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.DEBUG)
        columns = (
            TextColumn("{task.description:>10}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
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
            self._tasks[state.phase] = self._bars.add_task(state.phase, total=state.parts, speed="")
        speed = f"{state.rate / 1e6:,.1f} M {state.unit}/s"
        if state.peak_memory:
            speed += f", peak {readable_bytes(state.peak_memory)}"
        self._bars.update(self._tasks[state.phase], completed=state.done, total=state.parts, speed=speed)

    def close(self) -> None:
        self._bars.stop()
        super().close()


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
