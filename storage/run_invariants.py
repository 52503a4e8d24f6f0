"""What must hold of a training run."""

from __future__ import annotations

from pathlib import Path

from gnnloom.storage.checkpoint import checkpoint_epochs, read_checkpoint
from gnnloom.storage.errors import CorruptError, NotFoundError
from gnnloom.storage.run import Run


def check_run(run: Run) -> int:
    """Read a run's configuration, metrics, checkpoints and predictions; returns the number of epochs.

    Raises:
        CorruptError: something is damaged.
    """
    run.config()
    epochs = [line.get("epoch") for line in run.metrics()]
    if epochs != list(range(len(epochs))):
        raise CorruptError(f"{run.path / 'metrics.jsonl'}: the epochs do not follow each other from 0 on")
    for epoch in checkpoint_epochs(run.checkpoints):
        _verify_checkpoint(run.checkpoints, epoch)
    if (run.path / "predictions").is_dir():
        run.predictions().verify()
    return len(epochs)


def _verify_checkpoint(folder: Path, epoch: int) -> None:
    try:
        read_checkpoint(folder, epoch)
    except (CorruptError, FileNotFoundError, NotFoundError):
        # The trainer drops old checkpoints while it goes on.
        if epoch in checkpoint_epochs(folder):
            raise
