"""Signals that are handled for a while."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


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
