"""Ends the preparation of a recipe when a signal asks the job to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType

from gnnloom.trainer.job.signals import handling, raised_again
from gnnloom.trainer.job.stop import StopRequest


class InterruptedPreparation(SystemExit):
    """The process was asked to stop while it prepared.

    A SystemExit passes through every ``except Exception``.
    """


@contextmanager
def interrupted_by(stop: StopRequest, signals: Sequence[signal.Signals]) -> Iterator[None]:
    """Raise inside the block as soon as the process is asked to stop.

    Args:
        stop: the request, which may have come already; it remembers the signals that come now, too.
        signals: signals that ask for it.

    Raises:
        InterruptedPreparation: the process was asked to stop.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        stop.received = True
        raise InterruptedPreparation

    with ExitStack() as handlers:
        for number in signals:
            handlers.enter_context(handling(number, interrupt))
        handlers.enter_context(raised_again({InterruptedPreparation: signals[0]}))
        if stop.received:
            raise InterruptedPreparation
        yield
