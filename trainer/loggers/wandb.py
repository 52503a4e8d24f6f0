"""Weights & Biases: a run of the project ``gnnloom``, or of ``WANDB_PROJECT``.

``WANDB_MODE=offline`` keeps the log in the folder ``wandb`` of the current folder, or of ``WANDB_DIR``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from gnnloom.trainer.loggers.logger import LogContext, Logger

#: Exit codes that Weights & Biases shows as finished and as failed.
_EXIT_CODES = {"finished": 0, "stopped": 0, "failed": 1}


class _WandbLog:
    def __init__(self, run: Any) -> None:
        self._run = run

    def write(self, epoch: int, figures: Mapping[str, float]) -> None:
        self._run.log(dict(figures), step=epoch)

    def close(self, state: str) -> None:
        self._run.summary["state"] = state
        self._run.finish(exit_code=_EXIT_CODES[state])


def _open(context: LogContext) -> _WandbLog:
    import wandb  # noqa: PLC0415 - optional

    # The same run always gets the same identifier, so a resumed run continues its log.
    identifier = hashlib.sha256(str(context.folder.resolve()).encode()).hexdigest()[:16]
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", "gnnloom"),
        group=context.dataset,
        name=context.run,
        id=os.environ.get("WANDB_RUN_ID", identifier),
        config=dict(context.config),
        resume="allow" if context.first_epoch else None,
    )
    return _WandbLog(run)


LOGGER = Logger(
    name="wandb",
    order=3,
    help="a run of Weights & Biases",
    open=_open,
    package="wandb",
    install="gnnloom[wandb]",
)
