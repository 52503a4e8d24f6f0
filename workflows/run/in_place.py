"""Work on the ranks of the MPI job that this process belongs to, rather than on new ones. Every call is collective."""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from gnnloom.storage.errors import GnnloomError, InputError
from gnnloom.trainer.comm.agreement import CollectiveError, together
from gnnloom.trainer.comm.mpi import abort, duplicate_world, world
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import StoppedError
from gnnloom.trainer.job.signals import handling
from gnnloom.trainer.training.full_graph import train
from gnnloom.trainer.training.predict import predict

Result = TypeVar("Result")

#: Seconds between polls of a barrier that other ranks may reach only after hours of work.
_POLL_SECONDS = 0.02


def train_in_place(config: TrainConfig) -> dict[str, Any]:
    """Train on the ranks of this job. Collective.

    SIGTERM and SIGUSR1 ask for a checkpoint after the current epoch.

    Raises:
        InputError: the job has another number of ranks than the configuration.
        CollectiveError: as :func:`gnnloom.trainer.training.full_graph.train`.
        StoppedError: a rank was asked to stop; raised on every rank, after a checkpoint.
    """
    _check_size(config.ranks)
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        asked.append(number)

    with _ending_job_on_crash(), handling(signal.SIGTERM, ask), handling(signal.SIGUSR1, ask):
        result = train(world(), config, lambda: bool(asked))
    if result["state"] == "stopped":
        raise StoppedError(f"run {result['run']}: stopped after a checkpoint; train again to continue")
    return result


def predict_in_place(config: PredictConfig) -> dict[str, Any]:
    """Predict on the ranks of this job. Collective.

    Raises:
        InputError: the job has another number of ranks than the configuration.
        CollectiveError: as :func:`gnnloom.trainer.training.predict.predict`.
    """
    _check_size(config.ranks)
    with _ending_job_on_crash():
        return predict(world(), config)


def first_rank_first(action: Callable[[], Result]) -> Result:
    """Call ``action`` on rank 0, and then, once its result is stored, on every other rank, which finds it. Collective.

    Raises:
        CollectiveError: the action raised a GnnloomError on some rank.
    """
    with _ending_job_on_crash():
        comm = world()
        done: list[Result] = []
        ranks = duplicate_world()
        failure: GnnloomError | None = None
        if comm.rank == 0:
            try:
                done.append(action())
            except GnnloomError as error:
                failure = error
        # The other ranks sleep: a blocking barrier would take cores from the rank at work.
        request = ranks.Ibarrier()
        while not request.Test():
            time.sleep(_POLL_SECONDS)
        ranks.Free()
        together(comm, lambda: _raise(failure))
        return together(comm, lambda: done[0] if done else action())


def _raise(failure: GnnloomError | None) -> None:
    if failure is not None:
        raise failure


def _check_size(ranks: int) -> None:
    """Check the number of ranks; all of them see the same, so all of them raise."""
    size = world().size
    if size != ranks:
        raise InputError(
            f"ranks={ranks}, but this MPI job has {size}; leave out ranks, or start {ranks} with mpiexec or srun"
        )


@contextmanager
def _ending_job_on_crash() -> Iterator[None]:
    """End the whole job on an error that the other ranks do not know of: they would wait for this one forever."""
    try:
        yield
    except CollectiveError:
        raise
    except BaseException:  # noqa: BLE001 - see above
        traceback.print_exc()
        # The process ends inside `abort`, and whatever Python has buffered is lost.
        sys.stderr.flush()
        abort(1)
