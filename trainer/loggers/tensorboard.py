"""TensorBoard: event files in the run's folder, which `tensorboard --logdir` shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnnloom.trainer.loggers.logger import LogContext, Logger


class _TensorBoardLog:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, epoch: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, epoch)

    def close(self, state: str) -> None:  # noqa: ARG002 - event files have no state
        self._writer.close()


def _open(context: LogContext) -> _TensorBoardLog:
    from torch.utils.tensorboard.writer import SummaryWriter  # noqa: PLC0415 - optional

    # TensorBoard hides entries of earlier sessions from the purged step on: a resumed run repeats these epochs.
    purged = context.first_epoch + 1 if context.first_epoch else None
    writer = SummaryWriter(str(context.folder / "tensorboard"), purge_step=purged)
    if not context.first_epoch:
        rows = "\n".join(f"| {name} | {value} |" for name, value in context.config.items())
        writer.add_text("configuration", f"| setting | value |\n| --- | --- |\n{rows}")
    return _TensorBoardLog(writer)


LOGGER = Logger(
    name="tensorboard",
    order=1,
    help="event files in the run's folder",
    open=_open,
    package="tensorboard",
    install="gnnloom[tensorboard]",
    stays_in_run=True,
)
