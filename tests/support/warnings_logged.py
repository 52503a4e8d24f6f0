"""Collects gnnloom's log: after a command has run, its logger does not propagate, so pytest's caplog sees nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def warnings_logged() -> Iterator[list[str]]:
    """Yield a list that gets every warning of gnnloom's loggers."""
    found: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("gnnloom")
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)
