"""Silences Dask's own log: a failure reaches the client as an exception, which gnnloom reports in its own words."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

#: Loggers of Dask and of the library that it communicates with.
_LOGGERS = ("distributed", "tornado", "asyncio")


def silence_dask() -> None:
    """Silence Dask in this process for good; called in every worker."""
    for logger in _loggers():
        logger.setLevel(logging.CRITICAL + 1)


@contextmanager
def dask_silenced() -> Iterator[None]:
    """Silence Dask in this process until the block ends."""
    before = {logger: logger.level for logger in _loggers()}
    silence_dask()
    try:
        yield
    finally:
        for logger, level in before.items():
            logger.setLevel(level)


def _loggers() -> list[logging.Logger]:
    """The loggers themselves and those below them, which may have levels of their own."""
    known = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _LOGGERS]
    return [logging.getLogger(name) for name in sorted({*_LOGGERS, *known})]
