"""What a Dask worker does before its first task. Dask loads this module by name (``distributed.worker.preload``)."""

from __future__ import annotations

import signal
from typing import Any


def dask_setup(worker: Any) -> None:  # noqa: ARG001 - Dask's signature
    """Ignore Ctrl-C: a terminal sends it to every process, and the one that started the workers will close them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
