"""Records a session of training: where it ran and for how long, and its metrics for other programs."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import torch

from gnnloom.storage.runs.provenance import begin_session, end_session
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.command_line import command_line
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.loggers.logger import LogContext
from gnnloom.trainer.training.run_log import RunLog


@contextmanager
def recorded(run: Run, config: TrainConfig, first_epoch: int, rank: int) -> Iterator[RunLog]:
    """Record a session inside the block; ranks other than 0 record nothing.

    Args:
        first_epoch: epoch at which the run begins or resumes.

    Yields:
        The log of the metrics.
    """
    names = config.log if rank == 0 else ()
    if rank == 0:
        begin_session(run.path, _describe(config), first_epoch)
    started, state = time.monotonic(), "failed"
    log = RunLog.open(names, LogContext(config.dataset, run.name, run.path, config.to_json(), first_epoch))
    try:
        yield log
        # Only a finished run has a result.
        state = "finished" if run.is_finished else "stopped"
    finally:
        log.close(state)
        if rank == 0:
            end_session(run.path, {"seconds": time.monotonic() - started, "state": state})


def _describe(config: TrainConfig) -> dict[str, Any]:
    return {
        "started": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "host": platform.node(),
        "platform": platform.platform(),
        "version": version("gnnloom"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "command": command_line(config),
    }
