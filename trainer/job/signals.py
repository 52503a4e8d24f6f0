"""Signal handlers that last for a ``with`` block."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

#: Delay before a lost signal is sent again; long enough for the interpreter to leave the destructor that lost it.
_SECONDS_AGAIN = 0.05


@contextmanager
def handling(number: signal.Signals, handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call ``handler`` on a signal while inside. Does nothing outside the main thread, which alone receives signals."""
    try:
        before = signal.signal(number, handler)
    # Python raises this outside the main thread.
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def raised_again(signals: Mapping[type[BaseException], signal.Signals]) -> Iterator[None]:
    """Send a signal again if the exception that its handler raised was lost.

    Python drops exceptions that are raised while it frees an object or returns to C code. Without this, the work would
    continue as if nobody had asked it to stop.

    Args:
        signals: type of the exception to the signal whose handler raises it.
    """
    before, main = sys.unraisablehook, threading.main_thread().ident

    def resend(lost: Any) -> None:
        number = signals.get(lost.exc_type)
        if number is None or main is None:
            before(lost)
        else:
            # In another thread and later: raised here, the exception would be lost again.
            threading.Timer(_SECONDS_AGAIN, signal.pthread_kill, (main, number)).start()

    sys.unraisablehook = resend
    try:
        yield
    finally:
        sys.unraisablehook = before
