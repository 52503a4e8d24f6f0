"""Continuing a run: which run a configuration means, what it takes from that run, and where the training begins."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.catalog import Catalog, Dataset
from gnnloom.storage.descriptors import check_confirmed
from gnnloom.storage.errors import CorruptError, ExistsError, InputError, NotFoundError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.runs.checkpoint import checkpoint_epochs
from gnnloom.storage.runs.run import Run
from gnnloom.storage.runs.transfer import Transfer, links_of_run
from gnnloom.storage.wording import counted, shell_command
from gnnloom.trainer.config.fields import named_code
from gnnloom.trainer.config.model_config import settled_normalization
from gnnloom.trainer.config.optimization_config import ended_early
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.open_shards import OpenedShards
from gnnloom.trainer.loggers.registry import LOGGERS
from gnnloom.trainer.tasks.registry import TASKS
from gnnloom.trainer.tasks.task import LabelSizes, Task

logger = logging.getLogger(__name__)

#: Inputs that a run must find unchanged when it continues, and what to call them in the error if they have changed.
_DATA = {
    "graph": "another graph",
    "vertices": "other vertex data",
    "vertices/": "other vertex data of type ",
    "links": "other links",
    "propagated": "other propagated values",
}

#: Fields that a run settled for the value of another field: they are not taken over if that one is given anew.
_DEPENDENT = {
    "model": ("normalization", "draw_once"),
    "mode": ("draw_once",),
    "algorithm": ("grid", "shards", "permutation"),
    "ranks": ("grid", "shards"),
}


@dataclass(frozen=True)
class Start:
    """Start of a training run.

    Attributes:
        first_epoch: 0 for a new run, otherwise the epoch of the checkpoint from which the run continues.
        is_finished: the run has everything that was asked for, so there is nothing to do.
    """

    first_epoch: int = 0
    is_finished: bool = False


def configure(fields: Mapping[str, Any], *, restart: bool = False) -> TrainConfig:
    """Build a configuration from some fields; the other fields come from the run, if it exists.

    Args:
        fields: at least ``catalog`` and ``dataset``; JSON or Python values.
        restart: the run is to start over, so it may change in any way.

    Raises:
        InputError: a field is unknown or has a value that is not allowed.
        ExistsError: the run was made with other values of fields that must not change; names them.
    """
    # An explicit name is looked up first: alone, the fields that are given may not make a valid configuration.
    run = _named_run(fields) or _existing_run(TrainConfig.of(**fields))
    if run is None:
        return TrainConfig.of(**fields)
    stored = TrainConfig.of_run(run)
    if not restart:
        _refuse_changes(run, stored, fields)
    replaced = {name for name, value in fields.items() if name in _DEPENDENT and value != stored.value(name)}
    dropped = {dependent for name in replaced for dependent in _DEPENDENT[name]}
    kept = {name: value for name, value in stored.to_json().items() if name not in dropped}
    if "log" not in fields:
        kept["log"] = _own_loggers(run, stored.run.log, goes_on=restart or not run.is_finished or "epochs" in fields)
    config = TrainConfig.of(**{**kept, **fields})
    return config if config.run_name == run.name else config.with_options(run=run.name)


def _own_loggers(run: Run, stored: Sequence[str], *, goes_on: bool) -> list[str]:
    """Loggers of a stored run that need no consent: anybody may have written the stored configuration.

    Args:
        goes_on: the run is trained on, so that a note about the others is of use.
    """
    own = [name for name in stored if name in LOGGERS and LOGGERS[name].stays_in_run]
    others = [name for name in stored if name not in own]
    if others and goes_on:
        logger.warning(
            "%s: log names %s, which may send metrics elsewhere and which this command does not name, so nothing is"
            " logged there; to log there, add %s (in Python, log=...)",
            run.config_path,
            ", ".join(map(repr, others)),
            shell_command("--log", ",".join(stored)),
        )
    return own


def _named_run(fields: Mapping[str, Any]) -> Run | None:
    """The run that the fields name, if it exists."""
    name = fields.get("run")
    dataset = _dataset_of(fields) if name is not None else None
    if dataset is None:
        return None
    run = Run(dataset.run_path(str(name)))
    return run if run.exists else None


def _dataset_of(fields: Mapping[str, Any]) -> Dataset | None:
    if "catalog" not in fields or "dataset" not in fields:
        return None  # building the configuration reports the missing field
    try:
        return Catalog(fields["catalog"]).dataset(str(fields["dataset"]))
    except NotFoundError:
        return None


def _existing_run(config: TrainConfig) -> Run | None:
    """The run of a complete configuration, if it exists."""
    dataset = _dataset_of(config.to_json())
    if dataset is None:
        return None
    named = find_named(dataset, config, lambda each: each.run_name)
    run = Run(dataset.run_path(named))
    return run if run.exists else None


def find_named(dataset: Dataset, config: TrainConfig, name_of: Callable[[TrainConfig], str]) -> str:
    """The name of a configuration's run in a dataset, which may have been imported under another name.

    Args:
        name_of: derives the name; derived names depend on the name that the dataset had when the run was made.

    Returns:
        The name of an existing run if there is one, otherwise the name that a new run gets.
    """
    name = name_of(config)
    if config.run.name is not None or dataset.run_path(name).is_dir():
        return name
    # All but the last part of a derived name are the same under any name of the dataset.
    alike = [each for each in dataset.runs() if each.rpartition("-")[0] == name.rpartition("-")[0]]
    for run in alike:
        before = Run(dataset.run_path(run)).config().get("dataset", config.data.dataset)
        if before != config.data.dataset and name_of(config.with_options(dataset=before)) == run:
            return run
    return name


def with_its_run(config: TrainConfig) -> TrainConfig:
    """The configuration with the name of its existing run, if that differs from the one that it would get today."""
    run = _existing_run(config)
    return config if run is None or run.name == config.run_name else config.with_options(run=run.name)


def _refuse_changes(run: Run, stored: TrainConfig, fields: Mapping[str, Any]) -> None:
    """Check that fields which must not change have not changed.

    Raises:
        InputError, ExistsError: as :func:`configure`.
    """
    before, different = stored.identity(), []
    for name, value in fields.items():
        # The name of the dataset may change; see TrainConfig.changes_since.
        if name == "dataset":
            continue
        now = TrainConfig.settled_option(name, value)
        if name == "normalization" and (model := fields.get("model", stored.model.name)) == stored.model.name:
            # The model decides what `auto` stands for.
            check_confirmed(*named_code(TrainConfig, {**stored.to_json(), **fields}).values())
            now = settled_normalization(model, now)
        now = list(now) if isinstance(now, tuple) else now
        if name in before and now != before[name]:
            different.append(f"{name} {before[name]!r} (now {now!r})")
    if different:
        raise ExistsError(_made_with(run, different))


def _made_with(run: Run, different: list[str]) -> str:
    return (
        f"{run.path}: this run was made with {', '.join(different)}; choose another name for the run, or --restart to"
        " start it over"
    )


def run_of(config: TrainConfig) -> Run:
    """The run of a configuration, which may not exist yet.

    Raises:
        NotFoundError: the dataset does not exist.
    """
    return Run(Catalog(config.data.catalog).dataset(config.data.dataset).run_path(config.run_name))


def inputs_of(
    config: TrainConfig, dataset: Dataset, opened: OpenedShards, transfer: Transfer | None = None
) -> dict[str, str]:
    """Kind to key of what a run reads: shards, what these were made from, links, and propagated values.

    Args:
        transfer: made the run, if it was trained on another graph. Then it reads no links.

    Raises:
        InputError, NotFoundError: there are no links that fit a task on pairs, or several; or no propagated values.
    """
    shards = opened.shards.artifact
    links = config.own_links(dataset, shards) if transfer is None else None
    found = {"links": links, "propagated": config.own_propagated(dataset, shards)}
    return {**opened.inputs} | {kind: values.artifact.key for kind, values in found.items() if values is not None}


@dataclass(frozen=True)
class OpenedRun:
    """A run and what it reads, each opened once on this rank.

    Attributes:
        run: may not exist yet.
        shards: as this rank sees them.
        inputs: kind to key of the artifacts that the run reads.
        counter: counts the bytes that the rank reads.
        transfer: made the run, if it was trained on another graph.
    """

    config: TrainConfig
    dataset: Dataset
    run: Run
    shards: OpenedShards
    inputs: Mapping[str, str]
    counter: ReadCounter
    transfer: Transfer | None = None

    @classmethod
    def open(
        cls,
        config: TrainConfig,
        dataset: Dataset,
        run: Run,
        rank: int,
        num_ranks: int,
        *,
        goes_on: bool = True,
        predicts: bool = False,
        plans: bool = False,
    ) -> OpenedRun:
        """Open the shards of a run, and find its links. Communicates nothing.

        Args:
            goes_on: shards of the data of the run are chosen if it exists.
            predicts: no other shards will do.
            plans: see :class:`~gnnloom.trainer.data.open_shards.ShardRequest`.

        Raises:
            InputError: the shards are made for another number of ranks, or the links do not fit them.
            NotFoundError: they do not exist.
        """
        counter, transfer = ReadCounter(), Transfer.of(run)
        reads, request = config.reads, replace(config.shard_request(dataset), transfer=transfer, plans=plans)
        if run.exists and goes_on:
            of_run = reads.of_run(dataset, request, run.inputs())
            # Without such shards, or with the key of others, the check of the data says which data has changed.
            request = of_run if predicts or (of_run.key and not request.key) else request
        shards = reads.open(dataset, request, rank, num_ranks, counter)
        inputs = inputs_of(config, dataset, shards, transfer)
        return cls(config, dataset, run, shards, inputs, counter, transfer)

    @property
    def label_sizes(self) -> LabelSizes:
        """Sizes of the labels that the run is trained on; vertex data of another graph may have others, or none."""
        return self.transfer or self.shards.shards

    def task(self) -> Task:
        """The task of the run.

        Raises:
            InputError: as :meth:`TrainConfig.task_of`.
        """
        if self.transfer is not None:
            return TASKS[self.transfer.task]
        shards = self.shards.shards
        # Any rows say which arrays the shards have.
        return self.config.task.task_of(self.shards.vertex_rows("rows", (0, 0)), shards, shards.artifact.path)

    def links(self) -> Links | None:
        """The links of a task on pairs, opened; None for a task on vertices.

        Raises:
            InputError, NotFoundError: as :func:`inputs_of`.
        """
        if self.transfer is not None:
            return links_of_run(self.dataset, self.run) if self.transfer.kind else None
        return self.config.own_links(self.dataset, self.shards.shards.artifact)


def find_start(run: Run, config: TrainConfig, inputs: Mapping[str, str], *, restart: bool = False) -> Start:
    """Find the start of a training run: the run's last checkpoint, if there is one.

    Args:
        run: of the configuration; may not exist yet.
        inputs: see :func:`inputs_of`.
        restart: start over, whatever the run has.

    Raises:
        ExistsError: the run is another training.
        InputError: the run was trained on other data, or for more epochs.
        CorruptError: the run has finished but lacks its checkpoint.
    """
    if run.exists and (transfer := Transfer.of(run)) is not None:
        raise ExistsError(
            f"{run.path}: this run has the weights of run {transfer.dataset}/{transfer.run} and only predicts; choose"
            " another name for the run"
        )
    if restart or not run.exists:
        return Start()
    different = config.changes_since(TrainConfig.of_run(run))
    if different:
        raise ExistsError(_made_with(run, different))
    last = max(checkpoint_epochs(run.checkpoints), default=0)
    trained = max(last, run.result()["epochs"]) if run.is_finished else last
    if trained == 0:
        return Start()
    _check_data(run, inputs)
    epochs = config.optimization.epochs
    if trained > epochs:
        raise InputError(
            f"{run.path}: trained for {counted(trained, 'epoch')} already, more than epochs {epochs}; ask for"
            f" at least {counted(trained, 'epoch')}, choose another name for the run, or --restart to start it over"
        )
    is_done = run.is_finished and (trained == epochs or ended_early(run.result(), config.stopping.patience))
    # A model without hidden layers has no embeddings.
    embedding = "embedding" if config.model.hidden else None
    if is_done and (not config.run.save_embeddings or run.has_predictions_of(predicting_epoch(run), embedding)):
        return Start(trained, is_finished=True)
    if last == 0:
        raise CorruptError(
            f"{run.checkpoints}: the checkpoints of this run of {counted(trained, 'epoch')} are missing, so it cannot"
            " continue; use --restart to start it over"
        )
    return Start(last)


def _check_data(run: Run, inputs: Mapping[str, str]) -> None:
    before = run.inputs()
    for kind in dict.fromkeys([*before, *inputs]):
        name, slash, of_type = kind.partition("/")
        if name + slash in _DATA and before.get(kind) != inputs.get(kind):
            raise InputError(
                f"{run.path}: this run was trained on {_DATA[name + slash]}{of_type}; choose another name for the run,"
                " or --restart to start it over"
            )


def predicting_checkpoint(run: Run, which: str = "auto", epoch: int | None = None) -> tuple[Path, int]:
    """Folder and epoch of the checkpoint that predicts; epoch 0 if there is none.

    Args:
        which: ``best``, ``last``, or ``auto`` for the best one if the run keeps one.
        epoch: an epoch that is asked for instead.
    """
    best = max(checkpoint_epochs(run.best_checkpoint), default=0)
    if epoch is None and (which == "best" or (which == "auto" and best)):
        return run.best_checkpoint, best
    return run.checkpoints, max(checkpoint_epochs(run.checkpoints), default=0) if epoch is None else epoch


def predicting_epoch(run: Run) -> int:
    """Epoch of the checkpoint that predicts unless another one is asked for; 0 if there is none."""
    return predicting_checkpoint(run)[1]
