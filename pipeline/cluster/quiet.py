"""Silences Dask's own log: a failure reaches the client as an exception, which gnnloom reports in its own words.

Dask's workers load this module by name before their first task (``distributed.worker.preload``).
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import MappingProxyType
from typing import Any

from gnnloom.pipeline.cluster.steady_clock import use_steady_clock

#: Loggers of Dask and of the library that it communicates with.
_LOGGERS = ("distributed", "tornado", "asyncio")

#: For the interpreters that Python starts for workers: files of the current folder must not replace modules that they
#: import before they get this process's path.
SAFE_PATH = MappingProxyType({"PYTHONSAFEPATH": "1"})

#: Filter for the warnings of Python's resource tracker, as PYTHONWARNINGS writes it: their texts begin with its name.
_TRACKER = "ignore:resource_tracker"


def silence_dask() -> None:
    """Silence Dask in this process for good."""
    for logger in _loggers():
        logger.setLevel(logging.CRITICAL + 1)


def dask_setup(worker: Any) -> None:  # noqa: ARG001 - Dask's signature
    """Ignore Ctrl-C, silence Dask and use a steady clock in a worker.

    A terminal sends Ctrl-C to every process, and the one that started the workers will close them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Dask logs the traceback of every task that fails, and of every heartbeat that is late on a busy machine.
    silence_dask()
    use_steady_clock()


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


def start_quiet_tracker() -> None:
    """Start the process in which Python keeps track of its workers' semaphores, if it does not run yet.

    It removes the semaphores that a killed worker leaves behind, and would warn about each at the end, after gnnloom's
    own error.
    """
    before = os.environ.get("PYTHONWARNINGS")
    # Its environment is the only way to reach it: it is a new interpreter, which Python starts with the first worker.
    with environment({**SAFE_PATH, "PYTHONWARNINGS": f"{before},{_TRACKER}" if before else _TRACKER}):
        resource_tracker.ensure_running()


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables until the block ends."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _loggers() -> list[logging.Logger]:
    """The loggers themselves and those below them, which may have levels of their own."""
    # Dask sets the levels of its loggers when it is imported, which must not come later.
    import distributed  # noqa: F401, PLC0415 - takes a second to import

    known = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _LOGGERS]
    return [logging.getLogger(name) for name in sorted({*_LOGGERS, *known})]
