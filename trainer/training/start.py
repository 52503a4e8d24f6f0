"""What a training does before its first epoch: finds where it begins, checks that it fits, and reads what it needs."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnloom.storage.artifacts.row_shards import RowShards
from gnnloom.storage.catalog import Catalog
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.runs.checkpoint import StoredCheckpoint, read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.comm.agreement import Alike, together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.config.continuation import Start, find_start, inputs_of, run_of
from gnnloom.trainer.config.stored_predictions import drop_superseded
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.vertex_data import Labels
from gnnloom.trainer.loggers.registry import check_loggers
from gnnloom.trainer.tasks.objectives.own_functions import OwnFunction, load_function
from gnnloom.trainer.training.alike import alike_data
from gnnloom.trainer.training.build import check_class_weights
from gnnloom.trainer.training.course import KeptBest
from gnnloom.trainer.training.rehearsal.fits import check_memory
from gnnloom.trainer.training.rehearsal.projection import with_drawn_options
from gnnloom.trainer.training.rehearsal.rank_memory import rehearse
from gnnloom.trainer.training.session import Session, open_session

if TYPE_CHECKING:
    # It imports numba, which a job on row shards need not load.
    from gnnloom.storage.artifacts.grid_shards import GridShards

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Begun:
    """A training whose run has begun.

    Attributes:
        num_training: labeled vertices of the training split, over all ranks.
        memory: bytes that the busiest rank will take beyond the process itself; None if it is not known.
    """

    config: TrainConfig
    shards: RowShards | GridShards
    num_training: int
    memory: int | None


def read_inputs(comm: Communicator, config: TrainConfig) -> dict[str, str]:
    """The keys of what this rank would read. Communicates nothing."""
    return inputs_of(_shards(comm, config).artifact)


def agreed_start(comm: Communicator, config: TrainConfig, *, restart: bool) -> Start:
    """Where the training begins, after a check that all ranks find the same data and the same run. Collective."""

    def find() -> tuple[Start, dict[str, str]]:
        inputs = read_inputs(comm, config)
        return find_start(config, inputs, restart=restart), inputs

    def alike(found: tuple[Start, dict[str, str]]) -> Alike:
        start, inputs = found
        run = {"epoch of the last checkpoint": start.first_epoch, "finished": start.is_finished}
        return alike_data(inputs, run)

    return together(comm, find, alike)[0]


def _shards(comm: Communicator, config: TrainConfig) -> RowShards | GridShards:
    """The shards that this rank would read. Communicates nothing."""
    dataset = Catalog(config.catalog).dataset(config.dataset)
    opened = config.chosen_algorithm.reads.open(dataset, config, comm.rank, comm.size, ReadCounter())
    shards: RowShards | GridShards = opened.shards
    return shards


def check_fits(comm: Communicator, config: TrainConfig) -> int | None:
    """Check that the training can fit the memory of the first rank's machine. Collective.

    Returns:
        What the busiest rank will take beyond the process itself; None if that is not known.
    """
    ranks_here = comm.ranks_on_this_machine()
    needed = together(comm, lambda: _needed(comm, config))
    # Machines of one job are alike, so one rank acts for all.
    everyones: list[int] = comm.gather_numbers([-1 if needed is None else needed])[:, 0].astype(int).tolist()
    if min(everyones) < 0:
        return None
    here = everyones[:ranks_here]
    together(comm, lambda: check_memory(config, config.run_name, here) if comm.rank == 0 else None)
    return max(everyones)


def _needed(comm: Communicator, config: TrainConfig) -> int | None:
    """The rank's memory beyond the process itself. Communicates nothing."""
    dataset = Catalog(config.catalog).dataset(config.dataset)
    opened = config.chosen_algorithm.reads.open(dataset, config, comm.rank, comm.size, ReadCounter())
    drawn = with_drawn_options(config, dataset, opened.shards.artifact)
    memory = rehearse(drawn, dataset, opened, comm.rank)
    return None if memory is None else memory.total


def begin_run(run: Run, config: TrainConfig, first: int, shards: Artifact) -> None:
    """Write the beginning of a run, or of its continuation after so many epochs; called by rank 0."""
    content = config.to_json()
    if run.exists:
        before = run.config()
        # The name of a run may be derived from the name that the dataset had. Both stay, so that the run is found.
        if not config.changes_since(TrainConfig.of_run(run)):
            content |= {name: before.get(name) for name in ("dataset", "run")}
    if first:
        logger.info("run %s: resuming at epoch %d of %d", run.name, first + 1, config.epochs)
    run.start(content, first, inputs_of(shards))
    # A training that was killed after a checkpoint may have left those of the one before.
    drop_superseded(run)


@dataclass(frozen=True)
class ReadStart:
    """Everything that is read before the ranks communicate.

    Attributes:
        own_loss, own_metric: functions of the user's, if any.
        best: the best checkpoint that the run has, if it goes on from a checkpoint.
    """

    session: Session
    labels: Labels
    run: Run
    checkpoint: StoredCheckpoint | None
    own_loss: OwnFunction | None
    own_metric: OwnFunction | None
    best: KeptBest | None

    @classmethod
    def read(cls, comm: Communicator, config: TrainConfig, num_threads: int, first_epoch: int) -> ReadStart:
        check_loggers(config.log if comm.rank == 0 else ())
        session = open_session(comm, config, num_threads)
        run = run_of(config)
        share = (comm.rank, comm.size)
        checkpoint = _read_checkpoint(run, first_epoch, share, session.counter) if first_epoch else None
        objective, layout = session.objective, session.operator.layout(session.model.num_layers)
        labels = objective.read(session.label_rows, session.place)
        check_class_weights(config, objective)
        own_loss, own_metric = (
            None if text in {"auto", "none"} else load_function(option, text, layout, labels, objective.num_outputs)
            for option, text in (("loss", config.loss), ("metric", config.metric))
        )
        best = None if checkpoint is None else KeptBest.read(run)
        return cls(session, labels, run, checkpoint, own_loss, own_metric, best)


def _read_checkpoint(run: Run, epoch: int, share: tuple[int, int], counter: ReadCounter) -> StoredCheckpoint:
    """Open a checkpoint, of which this rank checks its share."""
    try:
        return read_checkpoint(run.checkpoints, epoch, share=share, counter=counter)
    except CorruptError as error:
        raise CorruptError(
            f"{error}; remove {run.checkpoints / f'{epoch:08d}'} to continue from the checkpoint before it, or use"
            " --restart to start the run over"
        ) from error
