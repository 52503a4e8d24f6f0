"""The steps before the first epoch: check that the memory suffices, read the shards, begin or resume the run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gnnloom.storage.errors import BudgetError, CorruptError, InputError
from gnnloom.storage.machine_memory import available_memory, memory_text
from gnnloom.storage.runs.checkpoint import StoredCheckpoint, read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.storage.samplers.registry import SAMPLERS
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.config.continuation import OpenedRun
from gnnloom.trainer.config.stored_predictions import drop_superseded
from gnnloom.trainer.config.task_config import BALANCED, NO_WEIGHTS, TaskConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.typed_vertices import TypedVertices
from gnnloom.trainer.data.vertex_data import Labels
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.loggers.registry import check_loggers
from gnnloom.trainer.modes.options import ON_DISK
from gnnloom.trainer.tasks.objectives.own_functions import OwnFunction, load_function
from gnnloom.trainer.tasks.objectives.vertex_objective import VertexObjective
from gnnloom.trainer.training.course import KeptBest
from gnnloom.trainer.training.rehearsal.projection import with_drawn_options
from gnnloom.trainer.training.rehearsal.rank_memory import rehearse
from gnnloom.trainer.training.session import Session, open_session

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Begun:
    """A training whose run has begun.

    Attributes:
        num_training: labeled vertices of the training split, over all ranks.
        memory: bytes that the busiest rank will take beyond the process itself; None if unknown.
    """

    opened: OpenedRun
    num_training: int
    memory: int | None


def check_fits(comm: Communicator, opened: OpenedRun) -> int | None:
    """Check that the training run can fit in the memory of the first rank's machine. Collective.

    Returns:
        Bytes that the busiest rank will take beyond the process itself; None if unknown.

    Raises:
        CollectiveError: the training run cannot fit; the message states the needed and the free memory.
    """
    ranks_here = comm.this_machine().ranks

    def find() -> int:
        drawn = with_drawn_options(opened.config, opened.dataset, opened.shards.shards.artifact)
        memory = rehearse(replace(opened, config=drawn), comm.rank)
        return -1 if memory is None else memory.total

    needed: list[int] = comm.gather_numbers([together(comm, find)])[:, 0].astype(int).tolist()
    if min(needed) < 0:
        return None
    # Machines of one job are alike, so one rank acts for all.
    together(comm, lambda: _check(opened.config, needed[:ranks_here]) if comm.rank == 0 else None)
    return max(needed)


def _check(config: TrainConfig, needed: Sequence[int]) -> None:
    """Compare the memory that the ranks of this machine will need with its free memory. Communicates nothing.

    Args:
        needed: bytes of each rank that shares this machine's memory, beyond the memory that its process already has.

    Raises:
        BudgetError: the training run cannot fit.
    """
    available = available_memory()
    if sum(needed) > available:
        what = f"{len(needed)} ranks" if len(needed) > 1 else "the rank"
        raise BudgetError(
            f"run {config.run_name}: {what} on this machine will need about {memory_text(sum(needed))} of memory, but"
            f" only {memory_text(available)} are available; choose {', '.join(_ways_out(config))}, or train on more"
            " machines"
        )


def _ways_out(config: TrainConfig) -> Iterator[str]:
    """Options that make a training run smaller."""
    yield "smaller layers (--hidden)"
    if config.mode.kind.is_sampled:
        size = "--parts-per-batch" if SAMPLERS[config.mode.sampler].draws_parts else "--batch-size"
        yield f"smaller batches ({size}) or fewer that are prepared ahead (--pool)"
        if config.run.evaluates and not config.mode.reads_batches and not config.mode.kind.reads_rows:
            # Unlike training, an evaluation holds whole layers of the graph in memory.
            yield "no evaluation (--eval-every 0 --no-final-eval)"
    if _allows(config, inputs=ON_DISK):
        yield "features that stay on disk (--inputs disk)"
    if _allows(config, recompute=True):
        yield "hidden layers that are recomputed (--recompute)"
    if config.model.precision != "bf16":
        yield "--precision bf16"


def _allows(config: TrainConfig, **changes: Any) -> bool:
    """Whether a training run could use other options, but does not."""
    try:
        return config.with_options(**changes) != config
    except InputError:
        return False


def begin_run(
    opened: OpenedRun, lines: Sequence[Mapping[str, Any]], num_threads: int, *, keeps_best: bool = True
) -> None:
    """Write the beginning of a run, or of its continuation; called by rank 0.

    Args:
        lines: metrics of the epochs that the run already has.
        keeps_best: the best checkpoint on disk is still the best one.
    """
    config, run, first = opened.config, opened.run, len(lines)
    content = config.to_json()
    if run.exists:
        stored = run.config()
        # The name of a run may be derived from an earlier name of the dataset. Both names are kept, so that the run is
        # found.
        if not config.changes_since(TrainConfig.of_run(run)):
            content |= {name: stored.get(name) for name in ("dataset", "run")}
    data = opened.shards.shards
    unread = data.num_features
    if config.model.embed and unread and not config.mode.on_types:
        logger.warning(
            "run %s: learns %d features per vertex; the %d stored ones are not read",
            run.name,
            config.model.embed,
            unread,
        )
    if config.mode.on_types and config.data.feature_norm == "auto" and not first:
        logger.info("run %s: features are not scaled: feature_norm auto does so in graphs without types only", run.name)
    if isinstance(data, TypedVertices) and data.without_neighbors and not first:
        logger.warning(
            "run %s: no relation leads to %s, whose vertices have no neighbors to read; --reverse also gathers along"
            " the reverses of the relations",
            run.name,
            " and ".join(data.without_neighbors),
        )
    if first:
        logger.info("run %s: resuming at epoch %d of %d", run.name, first + 1, config.optimization.epochs)
    run.start(content, first, opened.inputs, keeps_best=keeps_best)
    # A training run that was killed after a checkpoint may have left the files of the previous one.
    drop_superseded(run)
    before = lines[-1]["threads"] if lines else num_threads
    if before != num_threads:
        logger.warning(
            "run %s: resumes with %d threads per rank after epochs with %d, so the last bits of its losses may differ"
            " from an uninterrupted run; --threads %d keeps them",
            run.name,
            num_threads,
            before,
            before,
        )


@dataclass(frozen=True)
class ReadStart:
    """Everything that is read before the ranks communicate.

    Attributes:
        own_loss, own_metric: the user's functions, if any.
        lines: metrics of the epochs before the checkpoint.
        best: the best checkpoint that the run has, if it goes on from the same epoch or a later one.
    """

    session: Session
    labels: Any
    checkpoint: StoredCheckpoint | None
    lines: list[dict[str, Any]]
    own_loss: OwnFunction | None
    own_metric: OwnFunction | None
    best: KeptBest | None

    @classmethod
    def read(cls, comm: Communicator, opened: OpenedRun, num_threads: int, first_epoch: int) -> ReadStart:
        config = opened.config
        config.check_code()
        check_loggers(config.run.log if comm.rank == 0 else ())
        session = open_session(comm, opened, num_threads)
        checkpoint = _read_checkpoint(comm, opened, first_epoch) if first_epoch else None
        objective, layout = session.objective, session.operator.layout(session.model.num_layers)
        labels = objective.read(session.share.label_rows, session.place)
        own_loss, own_metric = (
            load_function(option, config.value(option), layout, labels, objective.num_outputs) if is_own else None
            for option, is_own in (("loss", config.task.is_own_loss), ("metric", config.task.metric != "none"))
        )
        best = None if checkpoint is None else KeptBest.read(opened.run)
        # A later epoch is trained again, with different last bits on another number of ranks, and its checkpoint is
        # made again.
        best = None if best is None or best.epochs > first_epoch else best
        lines = _earlier_lines(opened.run, first_epoch) if first_epoch else []
        return cls(session, labels, checkpoint, lines, own_loss, own_metric, best)


def class_weights(config: TaskConfig, objective: VertexObjective, layout: Layout, labels: Labels) -> Tensor | None:
    """(num_classes,) float64, the same on every rank; None for equal weights. Collective.

    ``balanced`` is the mean number of training vertices per class over the class's own number, as in scikit-learn.

    Args:
        layout: layout of the scores.
    """
    if config.class_weights == NO_WEIGHTS:
        return None
    if config.class_weights != BALANCED:
        return layout.place.tensor(config.given_class_weights, torch.float64)
    counts = layout.place.zeros((objective.num_outputs,), torch.int64)
    # The layout does not split labels, so one rank counts rows that it shares with other ranks.
    if layout.speaks_for_rows:
        counts += objective.class_counts(labels.label[objective.known(labels, "train")])
    layout.grid.comm.all_reduce(counts, Kind.SETUP)
    # A class without a training vertex is in no term of the loss.
    each = counts.to(torch.float64)
    return torch.where(counts > 0, each.sum() / (len(each) * each.clamp_min(1)), 0)


def _read_checkpoint(comm: Communicator, opened: OpenedRun, epoch: int) -> StoredCheckpoint:
    """Open a checkpoint; this rank checks its share."""
    folder = opened.run.checkpoints
    try:
        return read_checkpoint(folder, epoch, share=(comm.rank, comm.size), counter=opened.counter)
    except CorruptError as error:
        raise CorruptError(
            f"{error}; remove {folder / f'{epoch:08d}'} to continue from the checkpoint before it, or use --restart to"
            " start the run over"
        ) from error


def _earlier_lines(run: Run, first_epoch: int) -> list[dict[str, Any]]:
    """The metrics of the epochs before a checkpoint.

    Raises:
        CorruptError: there are fewer.
    """
    lines = [line for line in run.metrics() if line["epoch"] < first_epoch]
    if [line["epoch"] for line in lines] != list(range(first_epoch)):
        raise CorruptError(
            f"{run.metrics_path}: {len(lines)} of the {first_epoch} epochs before the last checkpoint; restore the"
            " file, or train again with --restart"
        )
    return lines
