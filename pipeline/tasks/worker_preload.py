"""What a Dask worker does before its first task; Dask loads this by name (``distributed.worker.preload``)."""

from __future__ import annotations

import signal
from typing import Any


def dask_setup(worker: Any) -> None:  # noqa: ARG001 - Dask's signature
    """Leave Ctrl-C, which a terminal sends to every process, to the one that started the workers and closes them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
