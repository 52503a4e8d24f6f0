"""Runs a recipe on the ranks of one MPI job: they are a Dask cluster first, and then the trainer's ranks."""

from __future__ import annotations

import dataclasses
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from gnnloom.pipeline.cluster.mpi_cluster import LEAST_RANKS, serve_ranks
from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.storage.errors import GnnloomError, InputError
from gnnloom.storage.shared_memory import remove_abandoned
from gnnloom.trainer.comm.agreement import CollectiveError, together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.ending import end_job
from gnnloom.trainer.comm.mpi import RawCommunicator, duplicate_world
from gnnloom.trainer.comm.transports.registry import world
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.job.stop import StopRequest, agreed_exit_code, preparing_signals
from gnnloom.trainer.planner.forecast import record_forecast
from gnnloom.trainer.training.alike import alike_command
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.predict import predict
from gnnloom.workflows.recipe.request import Assignment, Request
from gnnloom.workflows.run.interruption import InterruptedPreparation, interrupted_by
from gnnloom.workflows.run.place import Place, find_place, one_line
from gnnloom.workflows.run.stages import prepare, run_stages, save_recipe, write_output

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """How a job ended on this rank.

    Attributes:
        is_leader: this rank prints the result.
        is_finished: False if the job was asked to stop, and running it again continues it.
    """

    assignment: Assignment
    is_leader: bool
    is_finished: bool


def run_on_ranks(request: Request, progress: Callable[[], AbstractContextManager[None]], stop: StopRequest) -> Outcome:
    """Run a recipe on all ranks of this MPI job. Collective.

    Three or more ranks form a Dask cluster until the shards are made. With fewer, rank 0 prepares alone.

    Args:
        progress: entered by the rank that runs the stages before training.
        stop: the request to stop, which may come at any time. It ends the preparation, whose finished tasks are kept,
            or the training after a checkpoint.

    Raises:
        CollectiveError: the recipe or its input cannot be used, or a stage failed; raised on every rank.
    """
    comm = world()
    # Every rank reads the recipe itself. Only the state of the stages, which may change meanwhile, is sent.
    checked = together(
        comm,
        lambda: one_line(lambda: _check(request, comm.size)),
        lambda checked: alike_command("gnnloom run", _options(request, checked)),
    )
    # What killed jobs left.
    if comm.is_first_on_this_machine():
        remove_abandoned()
    assignment = _agree_on_stages(comm, checked)
    finished = not assignment.workload.needs_preparation or _prepare_together(comm, assignment, progress, stop)
    if finished and assignment.workload.needs_training:
        finished = _train_together(comm, assignment, stop)
    if finished:
        # Rank 0 writes; its failure becomes every rank's.
        together(comm, lambda: write_output(assignment) if comm.rank == 0 else None)
    return Outcome(assignment, comm.rank == 0, finished)


def _check(request: Request, num_ranks: int) -> Assignment:
    assignment = request.check()
    # Any number of ranks can prepare.
    if not assignment.workload.needs_training:
        return assignment
    ranks = assignment.workload.config.ranks
    # These ranks become the trainer's, which cannot be more or fewer.
    if ranks != num_ranks:
        raise InputError(
            f"{assignment.recipe.source_name}: [train] ranks = {ranks}, but this MPI job has {num_ranks}: start {ranks}"
            f" ranks, or use --set train.ranks={num_ranks}, or prepare only with --until shards"
        )
    return assignment


def _options(request: Request, assignment: Assignment) -> dict[str, Any]:
    """What every rank must have read in the same way: the request, the recipe and the keys of its artifacts."""
    asked = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
    sections: dict[str, Any] = {}
    for section in dataclasses.fields(assignment.recipe):
        content = getattr(assignment.recipe, section.name)
        if dataclasses.is_dataclass(content) and not isinstance(content, type):
            sections |= {f"[{section.name}] {name}": value for name, value in dataclasses.asdict(content).items()}
        else:
            sections[section.name] = content
    return {**asked, **sections, **{f"key of the {kind}": key for kind, key in assignment.workload.all_keys.items()}}


def _agree_on_stages(comm: Communicator, assignment: Assignment) -> Assignment:
    """Take rank 0's view of which stages are done: the catalog may change while the ranks look at it. Collective."""
    workload = assignment.workload
    # Ranks that disagree would wait for each other in different collective calls.
    done = comm.gather_numbers([stage.is_done for stage in workload.stages])[0].astype(bool).tolist()
    stages = tuple(replace(stage, is_done=is_done) for stage, is_done in zip(workload.stages, done, strict=True))
    return replace(assignment, workload=replace(workload, stages=stages))


def _prepare_together(
    comm: Communicator,
    assignment: Assignment,
    progress: Callable[[], AbstractContextManager[None]],
    stop: StopRequest,
) -> bool:
    """Run the stages before training. Collective.

    Returns:
        False if the job was asked to stop before they were done.
    """
    # Everything that can fail for a reason that a user can fix is checked here, by all ranks together: once the ranks
    # have taken different roles, an error of one of them leaves the others waiting.
    place = find_place(comm, assignment)
    # Dask gets a communicator of its own, so that its messages and the trainer's cannot meet.
    ranks = duplicate_world()
    is_client, options = _join_cluster(ranks, place, assignment)
    # Kept rather than raised: the other ranks are about to enter the barrier, and would wait there forever.
    failure: GnnloomError | None = None
    interrupted = False
    if is_client:
        try:
            # Inside the cluster only, which must be closed in order: that ends the other ranks' part.
            with open_cluster(options) as cluster, progress(), interrupted_by(stop, preparing_signals()):
                prepare(assignment, cluster)
        except InterruptedPreparation:
            interrupted = True
        except GnnloomError as error:
            failure = error
    # The ranks that are done sleep in it.
    comm.barrier()
    ranks.Free()
    # The client's failure becomes every rank's.
    together(comm, lambda: _raise(failure))
    if not comm.gather_numbers([interrupted]).any():
        return True
    if interrupted:
        logger.warning("asked to stop: finished tasks are kept; run the same command again to continue")
    return False


def _join_cluster(ranks: RawCommunicator, place: Place, assignment: Assignment) -> tuple[bool, ClusterOptions]:
    """Return at once on the rank that is the client; on the others, serve the cluster until it closes. Collective."""
    # Too few for a scheduler, a client and a worker: rank 0 runs the tasks in its own process, and the others wait.
    if ranks.Get_size() < LEAST_RANKS:
        return ranks.Get_rank() == 0, replace(assignment.cluster, kind="local", workers=0)
    dashboard, memory = assignment.recipe.cluster.dashboard, assignment.cluster.memory
    is_client = serve_ranks(ranks, place.ranks_here, place.interface, memory, dashboard=dashboard)
    # One rank schedules and one is the client.
    return is_client, replace(assignment.cluster, workers=ranks.Get_size() - 2)


def _raise(failure: GnnloomError | None) -> None:
    if failure is not None:
        raise failure


class _StoppedError(Exception):
    """The training was asked to stop and wrote a checkpoint; raised on every rank."""


def _train_together(comm: Communicator, assignment: Assignment, stop: StopRequest) -> bool:
    """Run the training stages that are not done. Collective.

    Args:
        stop: the request to stop, which may have come already, while the ranks prepared.

    Returns:
        False if a rank was asked to stop.
    """
    # From now on, SIGTERM asks for a checkpoint on every rank. Those of workers ignored all requests until now.
    stop.hear(signal.SIGTERM, signal.SIGUSR1)
    # Rank 0 logs for all.
    if comm.rank > 0:
        for name in ("gnnloom", "gnnloom.trainer", "gnnloom.workflows"):
            logging.getLogger(name).setLevel(logging.ERROR)

    def train_or_stop() -> None:
        # Before the training, which holds the run's lock until it ends.
        together(comm, lambda: save_recipe(assignment) if comm.rank == 0 else None)
        config, restart = assignment.workload.config, assignment.restart
        if train(comm, config, stop, restart=restart, begun=record_forecast)["state"] == "stopped":
            # An exception, so that the stage is not logged as done and the prediction does not start.
            raise _StoppedError

    def predict_together() -> None:
        predict(comm, _prediction(assignment))

    try:
        run_stages(assignment.workload.training, {"train": train_or_stop, "predict": predict_together})
    except _StoppedError:
        again = "the same command again, without --restart," if assignment.restart else "the same command again"
        logger.warning("stopped after a checkpoint; run %s to continue", again)
        return False
    return True


def _prediction(assignment: Assignment) -> PredictConfig:
    predict_section, config = assignment.recipe.predict, assignment.workload.config
    return PredictConfig.of_training(
        config,
        shards=config.shards,
        embeddings=bool(predict_section and predict_section.embeddings),
        threads=config.threads,
    )


@contextmanager
def end_job_on_error() -> Iterator[None]:
    """End the job on an error: with one message if all ranks know of it, by aborting all ranks otherwise."""
    try:
        yield
    except CollectiveError as error:
        if error.reports:
            sys.stderr.write(f"error: {error}\n")
        leave(error.code)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - the other ranks would wait forever
        end_job(world(), error)


def leave(code: int) -> NoReturn:
    """End this rank with an exit code, as all others do. Collective."""
    comm = world()
    left_with = agreed_exit_code(code, is_first=comm.rank == 0)
    comm.close()
    sys.exit(left_with)
