"""Calls inside an MPI job: there, the functions of the API are collective, and every rank gets the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gnnloom.workflows.run.mpi_launcher import LaunchedRank

Result = TypeVar("Result")


def ranks_of_job() -> int:
    """Number of ranks of the MPI job that this process belongs to; 1 outside of a job. Does not start MPI."""
    return LaunchedRank.from_environment().size


def once_per_job(action: Callable[[], Result]) -> Result:
    """Make and find a result: on rank 0 first, and then on all others. Collective inside an MPI job.

    Args:
        action: makes an artifact, or finds it if it exists.
    """
    if ranks_of_job() == 1:
        return action()
    # This import starts MPI, which only the ranks of a job may do.
    from gnnloom.workflows.run.in_place import first_rank_first

    return first_rank_first(action)
