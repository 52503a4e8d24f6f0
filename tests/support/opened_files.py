"""Records the files that this process opens.

A hook of Python's audit events cannot be removed, and every one of them slows whatever the process does after, so there
is one for all tests.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

#: Called with the path, the mode and the flags of every file that is opened.
Listener = Callable[[Any, Any, Any], None]

_listeners: list[Listener] = []


@contextmanager
def hearing_of_files(listener: Listener) -> Iterator[None]:
    """Call ``listener`` for every file that this process opens meanwhile."""
    _listen()
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@cache
def _listen() -> None:
    sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if _listeners and event == "open":
        for listener in _listeners:
            listener(*arguments)
