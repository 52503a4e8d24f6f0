"""Signals that are handled for a while."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SECONDS_AGAIN = 0.05


@contextmanager
def handling(number: signal.Signals, handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call ``handler`` at a signal while inside; without effect beside the main thread, which alone gets signals."""
    try:
        before = signal.signal(number, handler)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def raised_again(signals: Mapping[type[BaseException], signal.Signals]) -> Iterator[None]:
    """Send a signal again when what its handler raised was lost.

    Python drops what is raised while it frees an object or calls back from C, and the work would go on as if nobody
    had asked it to stop.

    Args:
        signals: what is raised by the handler of which signal.
    """
    before, main = sys.unraisablehook, threading.main_thread().ident

    def look(lost: Any) -> None:
        number = signals.get(lost.exc_type)
        if number is None or main is None:
            before(lost)
        else:
            # Not from here, where it would be lost again.
            threading.Timer(_SECONDS_AGAIN, signal.pthread_kill, (main, number)).start()

    sys.unraisablehook = look
    try:
        yield
    finally:
        sys.unraisablehook = before
