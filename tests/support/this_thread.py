"""Replaces threads that wait for the disk, so that tests do not wait for other threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class ThisThread(ThreadPoolExecutor):
    """Does what it is given where it is asked for."""

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], **_: Any) -> Iterator[Any]:
        return map(fn, *iterables)
