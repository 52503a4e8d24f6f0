"""Work on the ranks of the MPI job that this process belongs to, rather than on new ones. Every call is collective."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from gnnloom.storage.errors import GnnloomError
from gnnloom.trainer.comm.agreement import CollectiveError, together
from gnnloom.trainer.comm.ending import end_job
from gnnloom.trainer.comm.transports.registry import world
from gnnloom.trainer.job.launch import StoppedError
from gnnloom.trainer.training.alike import alike_command

Result = TypeVar("Result")


def in_job(action: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Call ``action``, a training or prediction of :mod:`~gnnloom.workflows.run.mpi_training`. Collective.

    The handlers of the signals that ask for a checkpoint are those from before again when this returns.

    Raises:
        CollectiveError: as the action.
        StoppedError: a rank was asked to stop; raised on every rank, after a checkpoint.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        with _ending_job_on_crash():
            result = action()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if result["state"] == "stopped":
        raise StoppedError(f"run {result['run']}: stopped after a checkpoint; train again to continue")
    return result


def first_rank_first(action: Callable[[], Result]) -> Result:
    """Call ``action`` on rank 0, and then, once its result is stored, on every other rank, which finds it. Collective.

    Raises:
        CollectiveError: the action raised a GnnloomError on some rank.
    """
    with _ending_job_on_crash():
        comm = world()
        # Another command must not wait for this one: it would not come here.
        together(comm, lambda: None, lambda _: alike_command("a stage of the pipeline", {}))
        done: list[Result] = []
        failure: GnnloomError | None = None
        if comm.rank == 0:
            try:
                done.append(action())
            except GnnloomError as error:
                failure = error
        # The other ranks sleep in it, however long the first one works.
        comm.barrier()
        together(comm, lambda: _raise(failure))
        return together(comm, lambda: done[0] if done else action())


def _raise(failure: GnnloomError | None) -> None:
    if failure is not None:
        raise failure


@contextmanager
def _ending_job_on_crash() -> Iterator[None]:
    """End the whole job on an error that the other ranks do not know of: they would wait for this one forever."""
    try:
        yield
    except CollectiveError:
        raise
    except BaseException as error:  # noqa: BLE001 - see above
        end_job(world(), error)
