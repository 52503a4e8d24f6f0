"""Collects facts about a run: its configuration, metrics and result, the shards that it read, and their lineage."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.catalog import Catalog, Dataset
from gnnloom.storage.disk.files import user_path
from gnnloom.storage.errors import CorruptError, GnnloomError, InputError, NotFoundError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.runs.provenance import read_sessions
from gnnloom.storage.runs.run import Run
from gnnloom.storage.runs.transfer import Transfer
from gnnloom.storage.shards.row_shards import RowShards
from gnnloom.storage.upkeep.lineage import Node, lineage
from gnnloom.trainer.config.stored_predictions import SMOOTHING
from gnnloom.trainer.tasks.registry import AUTO, TASKS
from gnnloom.trainer.tasks.task import Figure, Task

logger = logging.getLogger(__name__)

#: Kinds of computation in a profile, and their labels. Everything else but ``waiting`` is communication.
COMPUTING = {
    "spmm": "adjacency products",
    "gemm": "weight products",
    "sampling": "sampling",
    "other": "other computing",
}
WAITING = "waiting"
#: Splits by their names in the metrics, and their labels.
SPLITS = {"train": "training", "val": "validation", "test": "test"}


@dataclass(frozen=True)
class RunFacts:
    """One run and its origin.

    Attributes:
        result: the run's result; empty if it has not finished.
        metrics: one object per epoch.
        lineage: the run and everything that it was made from, by name, inputs first.
        sessions: times, machines and durations of training, oldest first; empty if not recorded.
    """

    dataset: Dataset
    run: Run
    config: Mapping[str, Any]
    result: Mapping[str, Any]
    metrics: list[dict[str, Any]]
    lineage: Mapping[str, Node]
    sessions: list[dict[str, Any]]

    @classmethod
    def gather(cls, dataset: Dataset, name: str | None) -> RunFacts:
        """Read everything about a run; without a name, about the only run of the dataset.

        Raises:
            NotFoundError: the dataset has no such run.
            InputError: the run has not finished an epoch; or there is no name, and not exactly one run.
            CorruptError: the loss or the time of an epoch is missing.
        """
        run = Run.open(dataset, name)
        metrics = run.metrics()
        if not metrics:
            raise InputError(f"{run.path}: no epoch has finished yet, so there is nothing to report")
        for number, line in enumerate(metrics, 1):
            if line.get("loss") is None or line.get("seconds") is None:
                raise CorruptError(f"{run.metrics_path}:{number}: expected a loss and seconds, found {line}")
        result = run.result() if run.is_finished else {}
        nodes = _ancestors(lineage(dataset), f"runs/{run.name}")
        return cls(dataset, run, run.config(), result, metrics, nodes, read_sessions(run.path))

    @property
    def name(self) -> str:
        return f"{self.dataset.name}/{self.run.name}"

    def curve(self, figure: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the epochs in which a figure was measured, and its values.

        Returns:
            (point,) int64 epochs, counted from 1, and (point,) float64 values; empty if it was never measured.
        """
        pairs = [(line["epoch"] + 1, line[figure]) for line in self.metrics if line.get(figure) is not None]
        epochs, values = zip(*pairs, strict=True) if pairs else ((), ())
        return np.array(epochs, np.int64), np.array(values, np.float64)

    @cached_property
    def smoothing(self) -> Mapping[str, Any]:
        """Smoothing of the run's predictions, with the scores before and after; empty without smoothing."""
        try:
            found = self.run.predictions().facts
        except NotFoundError:
            return {}
        except GnnloomError as error:
            logger.warning("left out of the report: %s", error)
            return {}
        return {**found[SMOOTHING], "epoch": found.get("epoch")} if SMOOTHING in found else {}

    @cached_property
    def task(self) -> Task:
        """The task of the run."""
        named = TASKS.get(self.config.get("task", AUTO))
        # A run whose task was derived from its data has not recorded it: choose the task with most figures in the
        # metrics.
        return named or max(TASKS.values(), key=self._measured)

    @cached_property
    def score(self) -> Figure:
        """The main score of the run's task; another score if the main score has no value in this run."""
        judge = self.task.judge
        measured = (
            each for each in (judge, *self.task.figures) if any(len(self.curve(name)[0]) for name in each.names)
        )
        return next(measured, judge)

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes by number; empty if the labels are numbers, or were removed."""
        inputs, transfer = self.run.inputs(), Transfer.of(self.run)
        if transfer is not None:
            return transfer.class_names
        with suppress(NotFoundError):
            if "links" in inputs:
                return self.dataset.links(inputs["links"]).class_names
            if "vertices" in inputs:
                return self.dataset.vertices(inputs["vertices"]).class_names
        return ()

    def class_label(self, number: int) -> str:
        """Name of a class with its number, or only the number."""
        return f"{self.class_names[number]} ({number})" if number < len(self.class_names) else str(number)

    @property
    def checkpoint_epoch(self) -> int:
        """Epoch of the checkpoint that the result describes; the last epoch if the result names none."""
        return int(self.result.get("checkpoint_epoch", len(self.metrics)))

    @property
    def measured_epoch(self) -> int | None:
        """Epoch of the scores that :meth:`reached` returns; None if there are none."""
        if "checkpoint_epoch" in self.result:
            return self.checkpoint_epoch
        epochs, _ = self.curve(f"val_{self.score.name}")
        return int(epochs[-1]) if len(epochs) else None

    def reached(self, figure: str) -> float | None:
        """Return a figure from the result or, without a result, its last value; None if it was not measured."""
        if figure in self.result:
            found: float | None = self.result[figure]
            return found
        _, values = self.curve(figure)
        return float(values[-1]) if len(values) else None

    @property
    def epoch_seconds(self) -> float:
        """The median time per epoch."""
        return float(np.median(self.curve("seconds")[1]))

    def _measured(self, task: Task) -> int:
        """Number of a task's figures that the run has measured."""
        return sum(len(self.curve(figure.names[0])[0]) > 0 for figure in task.figures) if task.automatic else -1

    @cached_property
    def artifacts(self) -> list[Artifact]:
        """All complete artifacts that the run was made from, inputs first. Damaged ones are left out with a warning."""
        opened = []
        for name, node in self.lineage.items():
            if node.state == "complete" and not name.startswith("runs/"):
                try:
                    opened.append(Artifact(self.dataset.path / name))
                except GnnloomError as error:
                    logger.warning("left out of the report: %s", error)
        return opened

    @cached_property
    def shards(self) -> Artifact | None:
        """The shards that the run read; None if they were removed."""
        return next((artifact for artifact in self.artifacts if artifact.kind == "shards"), None)

    @property
    def quality(self) -> Mapping[str, Any]:
        """The measured quality of the row shards' partition; empty for grid shards."""
        found = self.shards.facts.get("quality") if self.shards is not None else None
        return found or {}

    @cached_property
    def rank_seconds(self) -> list[dict[str, float]]:
        """Seconds of each rank in a median epoch on the last number of ranks, by kind; empty without a profile."""
        profiles = [line["profile"] for line in self.metrics if line.get("profile")]
        # A run may continue on another number of ranks, with other times per rank.
        profiles = [profile for profile in profiles if len(profile) == len(profiles[-1])]
        # The first epochs compile and allocate.
        profiles = profiles[min(2, len(profiles) - 1) :] if profiles else []
        ranks = len(profiles[0]) if profiles else 0
        found = []
        for rank in range(ranks):
            samples = [profile[rank]["seconds"] for profile in profiles]
            names = dict.fromkeys(name for sample in samples for name in sample)
            found.append({name: float(np.median([each.get(name, 0.0) for each in samples])) for name in names})
        return found

    @cached_property
    def bytes_between(self) -> NDArray[np.float64] | None:
        """(sender, receiver) float64: bytes counted in an epoch; None if the run did not store them."""
        matrix = self.result.get("bytes_between")
        return np.array(matrix, np.float64) if matrix else None

    @cached_property
    def rows_between(self) -> NDArray[np.int64] | None:
        """(sender, receiver) int64: rows that parts send in a forward product; None without row shards."""
        if self.shards is None or self.shards.parameters.get("layout") != "row":
            return None
        shards = RowShards(self.shards)
        # Each rank's send offsets hold the number of rows per receiver as differences.
        return np.stack([np.diff(shards.shard(rank).read("send_offset")) for rank in range(shards.num_parts)])


def open_run(catalog: Catalog, name: str) -> RunFacts:
    """Open a run by DATASET/RUN, by DATASET if it has only one run, or by the run's folder.

    Raises:
        NotFoundError: the dataset or run does not exist.
        InputError: the dataset has several runs, or none.
    """
    folder = user_path(name)
    # The path of a run works with any catalog, not only the current one.
    if (folder / "config.json").is_file() and folder.resolve().parent.name == "runs":
        path = folder.resolve()
        return RunFacts.gather(Dataset(path.parents[1]), path.name)
    dataset_name, _, run = name.partition("/")
    dataset = catalog[dataset_name]
    # Other commands show a run as DATASET/runs/RUN.
    return RunFacts.gather(dataset, run.removeprefix("runs/") or None)


def _ancestors(nodes: Mapping[str, Node], name: str) -> dict[str, Node]:
    """Return a node of a lineage and everything it was made from, in the lineage's order."""
    wanted, pending = set(), [name]
    while pending:
        found = pending.pop()
        if found in nodes and found not in wanted:
            wanted.add(found)
            pending.extend(nodes[found].inputs.values())
    return {each: node for each, node in nodes.items() if each in wanted}


def is_row_shards(artifact: Artifact | None) -> bool:
    """Return whether an artifact holds row shards."""
    return artifact is not None and artifact.parameters.get("layout") == "row"


def shard_nonzeros(artifact: Artifact) -> NDArray[np.int64]:
    """Count the nonzeros of shards.

    Returns:
        int64: (part, 2) in own and halo columns for row shards, (row block, column block) for grid shards.
    """
    if not is_row_shards(artifact):
        return np.array(next(iter(artifact.facts["cell_nnz"].values())), np.int64)
    # The lists of arrays have their lengths, so no shard is opened.
    sides = [
        [artifact.record(f"row/{rank:05d}/{side}/indices").shape[0] for side in ("own", "halo")]
        for rank in range(artifact.sizes["part"])
    ]
    return np.array(sides, np.int64)


def mean_ratio(values: NDArray[Any]) -> float:
    """Return the largest value over the mean; 1 if all values are 0."""
    mean = float(values.mean()) if values.size else 0.0
    return float(values.max()) / mean if mean else 1.0


def scored_epoch(facts: RunFacts) -> str:
    """Name the epoch of the model to which the scores of the test split belong."""
    # Results of earlier versions name only the epoch of the scores.
    return f" after epoch {facts.result.get('checkpoint_epoch', facts.result.get('class_epoch')):,}"
