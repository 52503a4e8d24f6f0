"""Ends a command within seconds of Ctrl-C or SIGTERM, whatever its main thread is doing.

Python runs the handler of a signal only between two instructions of the main thread: a compiled kernel or the sort of a
    large array delays the handler until it ends, and closing may take time, too. The system wakes another thread at
    once.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

from gnnloom.trainer.job.stop import ANSWERED

#: Time for a command to close everything it has open. Commands promise to end within three seconds.
SECONDS: Final = 2.0

Handler = Callable[[int, FrameType | None], object]


@contextmanager
def ended_in_time(handlers: Mapping[signal.Signals, tuple[Handler, str]], seconds: float = SECONDS) -> Iterator[None]:
    """End the process if it has not left the block some seconds after a signal.

    This kills tasks, as the system might: finished work is kept.

    Args:
        handlers: handlers of the signals, each with the line to print. A signal with another handler is left alone.
        seconds: time from the signal to the end.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader, handlers, seconds), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        # The thread then reads the end of the pipe.
        os.close(writer)


def _watch(reader: int, handlers: Mapping[signal.Signals, tuple[Handler, str]], seconds: float) -> None:
    # The time at which the process ends, and the signal that ends it.
    due: dict[int, float] = {}
    is_open = True
    while is_open or due:
        now = time.monotonic()
        first = min(due, key=due.__getitem__, default=None)
        if first is not None and due[first] <= now:
            line = next(line for number, (_, line) in handlers.items() if number == first)
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"{line}\n".encode())
            _end(128 + first)
        waits = None if first is None else due[first] - now
        ready, _, _ = select.select([reader] if is_open else [], [], [], waits)
        numbers = os.read(reader, 64) if ready else b""
        is_open = is_open and not (ready and not numbers)
        for number in numbers:
            handler = next((handler for each, (handler, _) in handlers.items() if each == number), None)
            if number & ANSWERED:
                # This thread may read it late: the handler may have been replaced in the meantime.
                due.pop(number & ~ANSWERED, None)
            elif handler is not None and signal.getsignal(number) is handler:
                due.setdefault(number, time.monotonic() + seconds)
    os.close(reader)


def leave(code: int) -> NoReturn:
    """Exit at once, without waiting for threads or processes that Python would wait for."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    _end(code)


def _end(code: int) -> NoReturn:
    """End this process and its workers, which otherwise notice its end only after all their imports."""
    # Not imported here, because most commands start no workers.
    try:
        if "multiprocessing" in sys.modules:
            for worker in sys.modules["multiprocessing"].active_children():
                worker.kill()
    finally:
        # Another thread may change the list of workers at the same time.
        os._exit(code)
