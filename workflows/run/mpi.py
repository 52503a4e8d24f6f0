"""A recipe on the ranks of one MPI job: they are a Dask cluster first, and then the trainer's ranks."""

from __future__ import annotations

import logging
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import NoReturn

from gnnloom.pipeline.tasks.cluster import ClusterOptions, open_cluster
from gnnloom.pipeline.tasks.mpi_cluster import LEAST_RANKS, memory_per_rank, serve_ranks
from gnnloom.storage.errors import GnnloomError, InputError
from gnnloom.trainer.__main__ import StopRequest
from gnnloom.trainer.comm.agreement import CollectiveError, together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.mpi import RawCommunicator, abort, duplicate_world, finalize, world
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.full_graph import train
from gnnloom.trainer.training.predict import predict
from gnnloom.workflows.cli.output import readable_bytes
from gnnloom.workflows.recipe.stages import TRAINING, Job, Request
from gnnloom.workflows.run.local import prepare, save_recipe, timed, write_output

logger = logging.getLogger(__name__)

#: Seconds between looks at whether the others have come, while one rank works for minutes or hours.
_PATIENCE = 0.02


@dataclass(frozen=True)
class Done:
    """How a job ended on this rank.

    Attributes:
        shows: this rank speaks for all.
        is_finished: False after a request to stop, when a checkpoint was written.
    """

    job: Job
    shows: bool
    is_finished: bool


def run_on_ranks(request: Request, progress: Callable[[], AbstractContextManager[None]]) -> Done:
    """Run a recipe on all ranks of this MPI job. Collective.

    Three ranks or more are a Dask cluster until the shards are there; fewer prepare in rank 0 alone.

    Args:
        progress: entered by the rank that runs the stages before training.

    Raises:
        CollectiveError: something cannot be used, or a stage failed; on every rank.
    """
    comm = world()
    # Sent before the time of a job is over; the training that follows stops after its first epoch then.
    stop = StopRequest(signal.SIGUSR1)
    job = _agreed(comm, together(comm, lambda: _checked(request, comm.size)))
    if job.plan.prepares:
        _prepare_together(comm, job, progress)
    finished = _train(comm, job, stop) if job.plan.trains else True
    if finished:
        together(comm, lambda: write_output(job.recipe, job.plan) if comm.rank == 0 else None)
    return Done(job, comm.rank == 0, finished)


def _checked(request: Request, num_ranks: int) -> Job:
    job = request.open()
    ranks = job.plan.config.ranks
    if job.plan.trains and ranks != num_ranks:
        raise InputError(
            f"{job.recipe.source_name}: [train] ranks = {ranks}, but this MPI job has {num_ranks}: start {ranks} ranks,"
            f" or --set train.ranks={num_ranks}, or prepare only with --until shards"
        )
    return job


def _agreed(comm: Communicator, job: Job) -> Job:
    """What is there may change while the ranks look: the first one decides. Collective."""
    done = comm.gather_numbers([step.is_done for step in job.plan.steps])[0].astype(bool).tolist()
    steps = tuple(replace(step, is_done=is_done) for step, is_done in zip(job.plan.steps, done, strict=True))
    return replace(job, plan=replace(job.plan, steps=steps))


def _prepare_together(comm: Communicator, job: Job, progress: Callable[[], AbstractContextManager[None]]) -> None:
    """Run the stages before training. Collective."""
    ranks_here = comm.ranks_on_this_machine()
    if comm.size >= LEAST_RANKS:
        together(comm, lambda: _check_memory(job, ranks_here))
    ranks = duplicate_world()
    leads, options = _take_place(ranks, ranks_here, job)
    failure: GnnloomError | None = None
    if leads:
        try:
            with open_cluster(options) as cluster, progress():
                prepare(job.recipe, job.plan, cluster)
        except GnnloomError as error:
            failure = error
    _meet(ranks)
    ranks.Free()
    together(comm, lambda: _fail_with(failure))


def _check_memory(job: Job, ranks_here: int) -> None:
    there = memory_per_rank(ranks_here)
    if job.cluster.memory > there:
        raise InputError(
            f"{job.recipe.source_name}: [cluster] memory = {job.recipe.cluster.memory}, but each of the {ranks_here}"
            f" ranks on this machine gets {readable_bytes(there)}: lower it, or start fewer ranks"
        )


def _take_place(world: RawCommunicator, ranks_here: int, job: Job) -> tuple[bool, ClusterOptions]:
    """Serve the cluster until its end, or return at once on the rank that leads. Collective."""
    if world.Get_size() < LEAST_RANKS:
        return world.Get_rank() == 0, replace(job.cluster, kind="local", workers=0)
    wanted = job.recipe.cluster
    leads = serve_ranks(world, ranks_here, wanted.interface, dashboard=wanted.dashboard)
    return leads, replace(job.cluster, workers=world.Get_size() - 2)


def _meet(world: RawCommunicator) -> None:
    """Wait until every rank is here, asleep: one of them may be at work for hours. Collective."""
    request = world.Ibarrier()
    while not request.Test():
        time.sleep(_PATIENCE)


def _fail_with(failure: GnnloomError | None) -> None:
    if failure is not None:
        raise failure


def _train(comm: Communicator, job: Job, earlier: StopRequest) -> bool:
    """Run the training stages that are not done; False if a rank was asked to stop. Collective."""
    later = StopRequest(signal.SIGTERM, signal.SIGUSR1)
    leads = comm.rank == 0
    if not leads:
        logging.getLogger("gnnloom").setLevel(logging.ERROR)
        logging.getLogger("gnnloom.trainer").setLevel(logging.ERROR)
    try:
        for step in job.plan.steps:
            if step.stage in TRAINING and not step.is_done:
                with timed(step) if leads else nullcontext():
                    _train_stage(comm, job, step.stage, lambda: earlier() or later())
    except _StoppedError:
        if leads:
            logger.warning("stopped after a checkpoint; the same command goes on")
        return False
    return True


class _StoppedError(Exception):
    """The training was asked to stop, and wrote a checkpoint; on every rank."""


def _train_stage(comm: Communicator, job: Job, stage: str, stop: Callable[[], bool]) -> None:
    """Train, or predict. Collective."""
    config = job.plan.config
    if stage == "predict":
        predict(comm, _prediction(config, job))
        return
    together(comm, lambda: save_recipe(job.recipe, config) if comm.rank == 0 else None)
    if train(comm, config, stop)["state"] == "stopped":
        raise _StoppedError


def _prediction(config: TrainConfig, job: Job) -> PredictConfig:
    return PredictConfig.of_training(
        config,
        shards=config.shards,
        embeddings=bool(job.recipe.predict and job.recipe.predict.embeddings),
        threads=config.threads,
    )


@contextmanager
def end_job_on_error() -> Iterator[None]:
    """Let the rank that knows best report an error that all know of; end all ranks at once on any other."""
    try:
        yield
    except CollectiveError as error:
        if error.reports:
            sys.stderr.write(f"error: {error}\n")
        leave(error.code)
    except SystemExit:
        raise
    except BaseException:  # noqa: BLE001 - the others would wait for ever
        traceback.print_exc()
        sys.stderr.flush()
        abort(1)


def leave(code: int) -> NoReturn:
    """End this rank, as all others do, with an exit code. Collective."""
    finalize()
    sys.exit(code)
