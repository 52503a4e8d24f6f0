"""Shows the progress of pipeline phases and training runs: as bars on a terminal, or a log line every few seconds."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Final

from rich.console import Console  # noqa: TID251 - a type; `console` makes it

from gnnloom.storage.meters import INTERVAL
from gnnloom.storage.runs.run import Run
from gnnloom.storage.wording import counted
from gnnloom.workflows.cli.terminal.screen import console, say

#: Shows the number of finished epochs, or of other units, the loss of the last one, and whether the block has ended.
Show = Callable[[int, float | None, bool], None]

#: Printed when a command has to wait for a kernel that no earlier command has used.
_COMPILING: Final = "compiling kernels, once: no later command waits for them (`gnnloom doctor --warm` compiles all)"

#: Seconds between polls of the progress of a training run.
_POLL_SECONDS = 0.5


@contextmanager
def _compilations_noticed(stderr: Console) -> Iterator[None]:
    """Report once that kernels are being compiled: a first command of one second would seem to hang for ten."""
    # Imported here because training runs show their epochs without numba.
    from numba.core.event import Event, Listener, install_listener

    class Notice(Listener):
        is_given = False

        def on_start(self, event: Event) -> None:
            del event
            if not self.is_given:
                self.is_given = True
                stderr.print(_COMPILING, soft_wrap=True)

        def on_end(self, event: Event) -> None:
            del event

    with install_listener("numba:compile", Notice()):
        yield


@contextmanager
def shown_progress(*, compiles: bool = True) -> Iterator[None]:
    """Show the progress of phases that run inside the ``with`` block, and whether kernels are compiled for them.

    Args:
        compiles: the phases may compile kernels; otherwise numba is not imported.
    """
    # Imported here, like all of rich that draws bars: the help and listings draw none.
    from gnnloom.workflows.interop.progress_bars import BarHandler, phases_shown

    # On standard error, because standard output is for results.
    stderr = console(on_stderr=True)
    noticing = _compilations_noticed(stderr) if compiles else nullcontext()
    with phases_shown(BarHandler(stderr) if sys.stderr.isatty() else None), noticing:
        yield


@contextmanager
def shown_epochs(run: Run, epochs: int) -> Iterator[None]:
    """Show the finished epochs of a training run inside the ``with`` block."""
    # Until the ranks rewrite the file of metrics, it holds the epochs of an earlier session. The wall
    # clock, because the start is compared with the file's modification time.
    begun = time.time()
    with _watched(lambda: run.progress_since(begun), epochs, "epoch"):
        yield


@contextmanager
def shown_count(finished: Callable[[], int], total: int, unit: str) -> Iterator[None]:
    """Show the number of finished units while the ``with`` block runs.

    Args:
        finished: number of finished units; read twice a second.
        unit: name of a unit.
    """
    with _watched(lambda: (finished(), None), total, unit):
        yield


@contextmanager
def _watched(poll: Callable[[], tuple[int, float | None]], total: int, unit: str) -> Iterator[None]:
    """Show the number of finished units and the last loss, from a poll twice a second and at the end of the block."""
    ended = threading.Event()

    def watch(show: Show) -> None:
        is_last = False
        while not is_last:
            is_last = ended.wait(_POLL_SECONDS)
            done, loss = poll()
            # A continued run begins with its existing epochs, once its ranks have written them.
            if done:
                show(done, loss, is_last)

    with _display(total, unit) as show:
        thread = threading.Thread(target=watch, args=(show,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            # The thread draws on the display, which is closed next.
            thread.join()


@contextmanager
def _display(total: int, unit: str) -> Iterator[Show]:
    """Yield a function that shows the finished units and the last loss: as a bar on a terminal, or as lines."""
    if sys.stderr.isatty():
        from gnnloom.workflows.interop.progress_bars import new_bars

        with new_bars(console(on_stderr=True), "loss") as bars:
            task = bars.add_task(unit, total=total, loss="")
            yield lambda done, loss, _: bars.update(task, completed=done, loss=_loss_text(loss))
    elif logging.getLogger("gnnloom.trainer").isEnabledFor(logging.INFO):
        # The ranks log their own lines.
        yield lambda done, loss, is_last: None  # noqa: ARG005 - shows nothing
    else:
        yield _LineDisplay(total, unit)


def _loss_text(loss: float | None) -> str:
    return "" if loss is None else f"loss {loss:.5g}"


class _LineDisplay:
    """Prints the number of finished units and the last loss every few seconds, and at the end.

    A shorter block prints no line. No line is printed twice, for instance during an evaluation.
    """

    def __init__(self, total: int, unit: str) -> None:
        self._total, self._unit, self._printed, self._done = total, unit, time.monotonic(), 0

    def __call__(self, done: int, loss: float | None, is_last: bool) -> None:
        is_due = time.monotonic() - self._printed >= INTERVAL or (is_last and self._done)
        if is_due and done != self._done:
            self._printed, self._done = time.monotonic(), done
            say(f"{done} of {counted(self._total, self._unit)}  {_loss_text(loss)}".rstrip(), on_stderr=True)
