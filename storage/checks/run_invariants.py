"""Invariants of a training run."""

from __future__ import annotations

import tomllib
from pathlib import Path

from gnnloom.storage.errors import CorruptError, NotFoundError
from gnnloom.storage.format.files import parsing
from gnnloom.storage.runs.checkpoint import checkpoint_epochs, read_checkpoint
from gnnloom.storage.runs.provenance import read_sessions
from gnnloom.storage.runs.run import Run


def check_run(run: Run) -> int:
    """Read and check all of a run: configuration, metrics, result, checkpoints, predictions.

    Returns:
        The number of epochs.

    Raises:
        CorruptError: a file is damaged.
    """
    run.config()
    run.inputs()
    read_sessions(run.path)
    if run.is_finished:
        run.result()
    _check_recipe(run.path / "recipe.toml")
    epochs = [line["epoch"] for line in run.metrics()]
    if epochs != list(range(len(epochs))):
        raise CorruptError(f"{run.path / 'metrics.jsonl'}: the epochs do not follow each other from 0 on")
    for folder in (run.checkpoints, run.best_checkpoint):
        for epoch in checkpoint_epochs(folder):
            _verify_checkpoint(folder, epoch)
    # Whether there is a folder, not an index: a folder without its index is damage, which opening it reports.
    if run.predictions_path.is_dir():
        run.predictions().verify()
    return len(epochs)


def _check_recipe(path: Path) -> None:
    """Check that the run's recipe, if it has one, is valid TOML."""
    if path.exists():
        with parsing(path, "a recipe"):
            tomllib.loads(path.read_text(encoding="utf-8"))


def _verify_checkpoint(folder: Path, epoch: int) -> None:
    try:
        read_checkpoint(folder, epoch)
    except (CorruptError, FileNotFoundError, NotFoundError):
        # A running trainer may have dropped this checkpoint in the meantime, which is not damage.
        if epoch in checkpoint_epochs(folder):
            raise
