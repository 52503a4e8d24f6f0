"""What a Dask worker does before its first task. Dask loads this module by name (``distributed.worker.preload``)."""

from __future__ import annotations

import signal
from typing import Any

from gnnloom.pipeline.tasks.quiet import silence_dask


def dask_setup(worker: Any) -> None:  # noqa: ARG001 - Dask's signature
    """Ignore Ctrl-C and silence Dask.

    A terminal sends Ctrl-C to every process, and the one that started the workers will close them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Dask logs the traceback of every task that fails, and of every heartbeat that is late on a busy machine.
    silence_dask()
