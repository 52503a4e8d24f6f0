"""A training run: the folder runs/RUN/ with its configuration, metrics, checkpoints, predictions and result."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from gnnloom.storage.catalog import Dataset
from gnnloom.storage.disk.files import (
    JsonObject,
    parse_json,
    read_json,
    refuse_link,
    remove_tree,
    sync_folder,
    sync_tree,
    write_json,
    written_aside,
)
from gnnloom.storage.disk.locks import held, lock_path
from gnnloom.storage.disk.seal import open_line, seal_line
from gnnloom.storage.errors import CorruptError, ExistsError, IncompleteError, InputError, NotFoundError
from gnnloom.storage.faults import fault_point
from gnnloom.storage.format.arrays import ArrayRecord
from gnnloom.storage.format.listing import PREDICTIONS, REPLACED_PREDICTIONS, list_checkpoints, list_run, write_list
from gnnloom.storage.format.schema import FORMAT_VERSION, VERSION_ENTRY
from gnnloom.storage.runs.predictions import PREDICTIONS_INDEX, Predictions
from gnnloom.storage.runs.provenance import PROVENANCE
from gnnloom.storage.system_errors import OF_PERMISSION, naming
from gnnloom.storage.wording import counted

_CONFIG = "config.json"
_METRICS = "metrics.jsonl"
_RESULT = "result.json"
_INPUTS = "inputs.json"
_FORECAST = "forecast.json"
#: Recipe that made the run, if one did, and MLflow's identifier of the run, if it is logged there.
SAVED_RECIPE, MLFLOW_ID = "recipe.toml", "mlflow_run_id"
#: Where the weights of a run come from that was trained on another graph; see :mod:`gnnloom.storage.runs.transfer`.
TRANSFER: Final = "transfer.json"
#: All files of the folder itself, apart from Zarr's metadata. A logger may make a folder with its name.
RUN_FILES: Final = frozenset(
    {_CONFIG, _METRICS, _RESULT, _INPUTS, _FORECAST, PROVENANCE, SAVED_RECIPE, MLFLOW_ID, TRANSFER}
)

#: Reports of ranks of an earlier job that stood still, with the reason of their waiting.
_WAITING = ".waiting"

#: Entries of a line of metrics that are not single numbers, and their types.
_TABLES: Mapping[str, type] = {"bytes": dict, "messages": dict, "profile": list}
#: Entries of a forecast that readers rely on.
_PREDICTED: Mapping[str, type] = {"peak_memory": int, "profile": str, "clock": str}
_PREDICTED_EPOCH: Mapping[str, type] = {
    "epoch_seconds": float, "seconds_by_kind": dict, "bytes_sent": int, "messages_sent": int,
}  # fmt: skip


def _check_line(line: Mapping[str, Any], where: str) -> None:
    if not isinstance(line.get("epoch"), int):
        raise CorruptError(f"{where}: expected the number of an epoch, found {line.get('epoch')!r}")
    for name, value in line.items():
        if not (isinstance(value, _TABLES.get(name, int | float | None)) and _is_figures(value)):
            raise CorruptError(f"{where}: expected figures as {name}, found {value!r:.60}")


def _line_text(line: JsonObject) -> str:
    return seal_line(json.dumps(line, allow_nan=False)) + "\n"


def _is_figures(value: object) -> bool:
    """Whether a value is a number, None, or a (nested) table of such values."""
    if isinstance(value, dict | list):
        return all(map(_is_figures, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int | float | None)


class Run:
    """A run, opened for reading; the trainer also writes it through this class, on rank 0 only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name

    @classmethod
    def open(cls, dataset: Dataset, name: str | None) -> Run:
        """Open an existing run; without a name, the only run of the dataset.

        Raises:
            NotFoundError: the dataset has no such run.
            InputError: ``name`` is not a valid name of a run; or there is no name, and not exactly one run.
        """
        if name is None:
            names = dataset.runs()
            if len(names) != 1:
                listing = ", ".join(f"{dataset.name}/{each}" for each in names) or "none; `gnnloom train` makes one"
                raise InputError(f"{dataset.name}: choose one run of this dataset: {listing}")
            name = names[0]
        run = cls(dataset.run_path(name))
        if not run.exists:
            there = ", ".join(dataset.runs())
            others = f"there are: {there}" if there else f"train one with `gnnloom train {dataset.name}/{name}`"
            raise NotFoundError(f"dataset {dataset.name} has no run {name}; {others}")
        return run

    def __repr__(self) -> str:
        return f"Run({self.name!r}, {counted(len(self.metrics()), 'epoch')})"

    @property
    def config_path(self) -> Path:
        """File of the resolved configuration."""
        return self.path / _CONFIG

    @property
    def inputs_path(self) -> Path:
        """File that lists the artifacts that the run reads."""
        return self.path / _INPUTS

    @property
    def metrics_path(self) -> Path:
        """File of the metrics, one line per epoch."""
        return self.path / _METRICS

    @property
    def exists(self) -> bool:
        return self.config_path.exists()

    @property
    def is_finished(self) -> bool:
        return (self.path / _RESULT).exists()

    @property
    def state(self) -> str:
        """``finished``; ``transferred`` if it was trained on another graph; or else ``unfinished``."""
        if (self.path / TRANSFER).exists():
            return "transferred"
        return "finished" if self.is_finished else "unfinished"

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoint"

    @property
    def best_checkpoint(self) -> Path:
        """Folder of the best checkpoint, if the run keeps one; below the others, which are removed together."""
        return self.checkpoints / "best"

    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        return read_json(self.config_path)

    def inputs(self) -> dict[str, str]:
        """Kind to key of the shards and links that the run reads, and of the inputs of the shards."""
        return read_json(self.inputs_path)

    def forecast(self) -> dict[str, Any]:
        """The planner's forecast from when training last began or continued; empty if the planner made none.

        Raises:
            CorruptError: the file is not a forecast.
        """
        path = self.path / _FORECAST
        content = read_json(path) if path.exists() else {}
        # Epochs of sampled modes depend on what is drawn, so their forecast says nothing about them.
        expected = _PREDICTED if "mode" in content else {**_PREDICTED_EPOCH, **_PREDICTED}
        if content and not all(isinstance(content.get(name), kind) for name, kind in expected.items()):
            raise CorruptError(f"{path}: expected {', '.join(expected)}; remove it: runs do not need it")
        return content

    def write_forecast(self, content: JsonObject) -> None:
        """Store what the planner predicts; called by rank 0 only."""
        write_json(self.path / _FORECAST, content)

    def metrics(self) -> list[dict[str, Any]]:
        """One object per finished epoch; a last line that was cut short is left out.

        Raises:
            CorruptError: a line is not an object with an epoch, or holds values that are not numbers; or the run has
                finished with another number of epochs.
        """
        path = self.metrics_path
        finished = self._finished_epochs()
        # A killed writer leaves a last line without a line end.
        *lines, rest = (path.read_bytes() if path.exists() else b"").split(b"\n")
        metrics = [
            parse_json(open_line(line, f"{path}:{number}"), f"{path}:{number}") for number, line in enumerate(lines, 1)
        ]
        for number, line in enumerate(metrics, 1):
            _check_line(line, f"{path}:{number}")
        wrong = finished is not None and (rest or len(metrics) != finished)
        # A run that goes on drops its result before it changes its metrics.
        if wrong and self._finished_epochs() == finished:
            raise CorruptError(f"{path}: {len(metrics)} whole lines, although the run has finished {finished} epochs")
        return metrics

    def _finished_epochs(self) -> int | None:
        """Number of epochs of the finished run; None if it has not finished."""
        try:
            epochs: int = self.result()["epochs"]
        except IncompleteError:
            return None
        return epochs

    def begun_since(self, time: float) -> bool:
        """Whether a writer has begun to write since a time (seconds since 1970)."""
        try:
            return self.metrics_path.stat().st_mtime >= time
        except FileNotFoundError:
            return False

    def progress_since(self, begun: float) -> tuple[int, float | None]:
        """Number of epochs in the metrics of a writer, and the loss of the last one; None if there is none.

        It is 0 before that writer's first write. Epochs that the writer kept from before a resume are included.

        Args:
            begun: when the writer began (seconds since 1970).
        """
        path = self.metrics_path
        try:
            # An older file belongs to an earlier attempt at this run, whose epochs must not count as progress of this
            # one.
            lines = path.read_bytes().split(b"\n")[:-1] if path.stat().st_mtime >= begun else []
        except FileNotFoundError:
            lines = []
        if not lines:
            return 0, None
        loss = parse_json(lines[-1], str(path)).get("loss")
        return len(lines), loss if isinstance(loss, float) else None

    def result(self) -> dict[str, Any]:
        """The summary of the finished run.

        Raises:
            IncompleteError: the run has not finished.
            CorruptError: the file is not a summary.
        """
        path = self.path / _RESULT
        try:
            result = read_json(path)
        except FileNotFoundError:
            raise IncompleteError(f"{self.path}: the run has not finished; train again to finish it") from None
        if not isinstance(result.get("epochs"), int):
            raise CorruptError(f"{path}: lacks the number of epochs; remove it and train again to recreate it")
        return result

    @property
    def predictions_path(self) -> Path:
        """Folder of the predictions, which may not exist."""
        final, replaced = self.path / PREDICTIONS, self.path / REPLACED_PREDICTIONS
        # A replacement that was killed between its two renames leaves only the former predictions with a name.
        return replaced if replaced.is_dir() and not final.is_dir() else final

    @property
    def superseded_predictions(self) -> Path | None:
        """Folder of predictions that were replaced, if a killed replacement left it behind."""
        replaced = self.path / REPLACED_PREDICTIONS
        return replaced if replaced.is_dir() and self.predictions_path != replaced else None

    def predictions(self) -> Predictions:
        """The model's predictions for every vertex.

        Raises:
            NotFoundError: the run has no predictions.
        """
        return Predictions(self.predictions_path)

    def has_predictions_of(self, epoch: int, array: str | None = None) -> bool:
        """Whether the run has predictions that were made after an epoch.

        Args:
            array: an array that they must contain, such as ``embedding``.

        Raises:
            FormatError, CorruptError: the predictions cannot be read.
        """
        try:
            predictions = self.predictions()
        except NotFoundError:
            return False
        return predictions.facts.get("epoch") == epoch and (array is None or array in predictions)

    def start(
        self,
        config: JsonObject,
        first_epoch: int,
        inputs: Mapping[str, str] | None = None,
        *,
        keeps_best: bool = True,
    ) -> None:
        """Begin to write: keep the metrics of the epochs before ``first_epoch``, and drop what later epochs left.

        Predictions stay if the run resumes: they belong to its checkpoint. A forecast never stays. Called by rank 0
        only.

        Args:
            config: the resolved configuration.
            first_epoch: 0 for a new run; otherwise the epoch at which the run resumes.
            inputs: kind to key of the artifacts that the run reads.
            keeps_best: the best checkpoint stays: it is of an epoch before ``first_epoch``, and the run still keeps the
                best checkpoint by the same metric.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        # Epochs after the checkpoint are computed again and would otherwise appear twice.
        kept = [line for line in self.metrics() if line["epoch"] < first_epoch]
        # The result goes first: with it, a kill in the next lines would leave a run that counts as finished.
        (self.path / _RESULT).unlink(missing_ok=True)
        # A run may continue with other settings, for which the forecast differs or does not exist.
        (self.path / _FORECAST).unlink(missing_ok=True)
        shutil.rmtree(self.path / _WAITING, ignore_errors=True)
        if first_epoch == 0:
            self.drop_predictions()
            if self.checkpoints.is_dir():
                remove_tree(self.checkpoints)
        elif not keeps_best and self.best_checkpoint.is_dir():
            remove_tree(self.best_checkpoint)
            list_checkpoints(self.checkpoints)
        # Aside, so that a kill leaves either the old metrics or the new ones.
        with written_aside(self.metrics_path, durable=True) as aside:
            aside.write_text("".join(map(_line_text, kept)), encoding="utf-8")
        write_json(self.inputs_path, dict(inputs or {}))
        # Last: a folder with a configuration counts as a run, and one without it is a leftover.
        write_json(self.config_path, config)
        list_run(self.path)

    def append_metrics(self, line: JsonObject) -> None:
        """Append the line of one epoch; called by rank 0 only."""
        with naming(self.metrics_path), self.metrics_path.open("a", encoding="utf-8") as file:
            # A kill leaves at most a last line that is cut short, which readers skip and a resume drops.
            file.write(_line_text(line))
            file.flush()
            fault_point("metrics.append", self.metrics_path)

    def sync_metrics(self) -> None:
        """Wait until the metrics are on disk, which :meth:`append_metrics` does not.

        Called by rank 0 before a checkpoint or the summary appears, which then have all lines that belong to them.
        """
        with self.metrics_path.open("rb") as file:
            os.fsync(file.fileno())

    def finish(self, result: JsonObject) -> None:
        """Write the summary, which makes the run complete."""
        self.sync_metrics()
        write_json(self.path / _RESULT, result)
        fault_point("run.finished")

    def predictions_aside(self) -> Path:
        """Folder in which predictions are written before :meth:`publish_predictions`."""
        return self.path / f".writing-{PREDICTIONS}"

    def publish_predictions(self, records: list[ArrayRecord], facts: JsonObject) -> Predictions:
        """Replace the run's predictions by those written in :meth:`predictions_aside`.

        Called by one process, after all processes have written. However it is killed, the run has the former
        predictions or the new ones.

        Args:
            records: the arrays written.
            facts: what to store with them; JSON.
        """
        aside, final, replaced = self.predictions_aside(), self.path / PREDICTIONS, self.path / REPLACED_PREDICTIONS
        content = {
            VERSION_ENTRY: FORMAT_VERSION,
            "facts": dict(facts),
            "arrays": {record.path: record.to_json() for record in records},
        }
        write_list(aside)
        # The index is written after all arrays, and all of it is on disk before the first rename.
        write_json(aside / PREDICTIONS_INDEX, content)
        sync_tree(aside)
        if final.is_dir():
            # Left by a replacement that was killed at its end. Without ``final`` these are the only predictions.
            shutil.rmtree(replaced, ignore_errors=True)
            fault_point("predictions.replace")
            final.rename(replaced)
        fault_point("predictions.publish")
        aside.rename(final)
        fault_point("predictions.published")
        sync_folder(self.path)
        shutil.rmtree(replaced, ignore_errors=True)
        list_run(self.path)
        return Predictions(final)

    def drop_predictions(self) -> None:
        """Remove the predictions, which no longer belong to the run's last checkpoint; called by one process."""
        # The former ones first: they would count as soon as the others are gone.
        for name in (REPLACED_PREDICTIONS, PREDICTIONS):
            if (self.path / name).is_dir():
                remove_tree(self.path / name)


@contextmanager
def sole_writer(run: Run) -> Iterator[None]:
    """Lock a run for writing; the system releases the lock when this process ends, however it ends.

    A finished run in a catalog that cannot be written is not locked: it can be shown, and no process changes it.

    Raises:
        ExistsError: another process is writing the run.
        OSError: the catalog cannot be written, and the run is not finished.
    """
    with ExitStack() as stack:
        try:
            is_ours = stack.enter_context(held(lock_path(run.path.parents[1], "runs", run.name)))
        except OSError as error:
            if error.errno not in OF_PERMISSION or not run.is_finished:
                raise
            is_ours = True
        if not is_ours:
            raise ExistsError(
                f"run {run.name}: another process is training it or predicts with it; wait for it, or choose another"
                " name"
            )
        for folder in (run.path, run.checkpoints, run.best_checkpoint):
            for path in folder.glob("*"):
                refuse_link(path)
        yield
