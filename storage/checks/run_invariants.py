"""Invariants of a training run."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnloom.storage.checks.name_invariants import unknown_files_of_run
from gnnloom.storage.checks.tree_invariants import check_group, check_list, check_tree
from gnnloom.storage.disk.files import parse_json, parsing
from gnnloom.storage.disk.groups import METADATA
from gnnloom.storage.disk.locks import is_held, lock_path
from gnnloom.storage.disk.seal import check_text
from gnnloom.storage.errors import CorruptError, IncompleteError, NotFoundError
from gnnloom.storage.format.listing import outdated_run_lists
from gnnloom.storage.runs.checkpoint import CHECKPOINT_INDEX, checkpoint_epochs, read_checkpoint
from gnnloom.storage.runs.predictions import PREDICTIONS_INDEX, Predictions
from gnnloom.storage.runs.provenance import read_sessions
from gnnloom.storage.runs.run import SAVED_RECIPE, Run


def check_run(run: Run) -> int:
    """Read and check all of a run: configuration, forecast, metrics, result, checkpoints, predictions.

    Returns:
        The number of epochs.

    Raises:
        CorruptError: a file is damaged.
        IncompleteError: a list for Zarr readers is outdated, because its writer was killed.
    """
    run.config()
    run.inputs()
    run.forecast()
    read_sessions(run.path)
    _check_recipe(run.path / SAVED_RECIPE)
    # Before the metrics, which a run that ends meanwhile completes first.
    result = _read_result(run)
    metrics = run.metrics()
    epochs = [line["epoch"] for line in metrics]
    if epochs != list(range(len(epochs))):
        raise CorruptError(f"{run.metrics_path}: the epochs do not follow each other from 0 on")
    # A run that goes on drops its result before it adds to its metrics.
    if result is not None and run.is_finished:
        _check_result(run, result, metrics)
    for folder in (run.checkpoints, run.best_checkpoint):
        for epoch in checkpoint_epochs(folder):
            _verify_checkpoint(folder, epoch)
    _verify_predictions(run)
    _check_links(run.path)
    for file in unknown_files_of_run(run.path):
        raise CorruptError(f"{file}: gnnloom did not write this file; remove it")
    # A process that writes the run changes its lists at any time.
    if not is_held(lock_path(run.path.parents[1], "runs", run.name)):
        _check_groups(run)
    return len(epochs)


def _read_result(run: Run) -> dict[str, Any] | None:
    """The summary of a run; None if it has not finished."""
    try:
        return run.result()
    except IncompleteError:
        return None


def _check_result(run: Run, result: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> None:
    """Check that the summary of a finished run says what its metrics say."""
    # Results of earlier versions name no checkpoint: their figures are of the last evaluation.
    kept = result.get("checkpoint_epoch")
    if kept is not None and not (isinstance(kept, int) and 0 < kept <= len(metrics)):
        raise CorruptError(f"{run.path / 'result.json'}: checkpoint_epoch {kept!r} is not an epoch of the run")
    figures: dict[str, Any] = {}
    for line in metrics if kept is None else metrics[kept - 1 : kept]:
        figures |= {name: value for name, value in line.items() if name.endswith(("accuracy", "f1"))}
    wanted = {**figures, "loss": [line.get("loss") for line in metrics], "epochs": len(metrics)}
    for name, value in wanted.items():
        if result.get(name) != value:
            raise CorruptError(f"{run.path / 'result.json'}: {name} differs from the metrics")


def _check_links(folder: Path) -> None:
    # Unlike rglob, os.walk passes over a checkpoint that its run drops meanwhile.
    for where, folders, names in os.walk(folder):
        for name in (*folders, *names):
            if Path(where, name).is_symlink():
                raise CorruptError(f"{Path(where, name)}: a link, which gnnloom never writes; remove it")


def _check_groups(run: Run) -> None:
    """Check the text of all metadata of groups, and their lists."""
    outdated = outdated_run_lists(run.path)
    for where, folders, names in os.walk(run.path):
        folders[:] = [name for name in folders if not name.startswith(".")]
        file = Path(where, METADATA)
        # The metadata of arrays is checked with the arrays.
        if METADATA in names and parse_json(file.read_bytes(), str(file)).get("node_type") != "array":
            check_group(file.parent)
            if file.parent not in outdated:
                check_list(file.parent)
    for folder in outdated:
        raise IncompleteError(
            f"{folder / METADATA}: does not list what is stored, which misleads Zarr readers;"
            f" `gnnloom catalog gc {run.path.parents[1].name}` writes the list again"
        )


def _check_recipe(path: Path) -> None:
    """Check that the run's recipe, if it has one, is valid TOML."""
    if path.exists():
        check_text(path.read_bytes(), str(path))
        with parsing(path, "a recipe"):
            tomllib.loads(path.read_text(encoding="utf-8"))


def _verify_predictions(run: Run) -> None:
    # Whether there is a folder, not an index: a folder without its index is damage, which opening it reports.
    while (folder := run.predictions_path).is_dir():
        before = _identity(folder)
        try:
            predictions = Predictions(folder)
            predictions.verify()
            check_tree(folder, predictions.records, {PREDICTIONS_INDEX})
        except (CorruptError, FileNotFoundError, NotFoundError):
            # A run that goes on may have replaced or renamed them in the meantime, which is not damage.
            if run.predictions_path == folder and _identity(folder) == before:
                raise
        else:
            return


def _identity(folder: Path) -> tuple[int, int] | None:
    """Inode and time of modification, which differ if the folder was replaced; None if it does not exist."""
    try:
        found = folder.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _verify_checkpoint(folder: Path, epoch: int) -> None:
    try:
        stored = read_checkpoint(folder, epoch)
        records = [reader.record for reader in stored.readers.values()]
        check_tree(folder / f"{epoch:08d}", records, {CHECKPOINT_INDEX})
    except (CorruptError, FileNotFoundError, NotFoundError):
        # A running trainer may have dropped this checkpoint in the meantime, which is not damage.
        if epoch in checkpoint_epochs(folder):
            raise
