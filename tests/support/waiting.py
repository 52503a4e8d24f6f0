"""Makes ranks of tests sleep while they wait for each other, because they outnumber the cores."""

from __future__ import annotations

from unittest.mock import patch


def sleep_between_looks() -> None:
    """Have this rank sleep at once and for long between its looks, rather than spin and look soon again.

    Every rank waits for most of a job, and each look takes processor time from the ranks that others wait for.
    """
    # Imported here, as it starts MPI.
    for name, seconds in (("_SPIN_SECONDS", 0.0), ("_SLEEP_SECONDS", 2e-4), ("_LATE", 1 / 8)):
        patch(f"gnnloom.trainer.comm.mpi.{name}", seconds).start()
