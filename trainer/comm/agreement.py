"""Errors that all ranks agree on: what fails on one rank fails on all, and one rank reports it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from gnnloom.storage.errors import GnnloomError, in_one_line
from gnnloom.trainer.comm.communicator import Communicator

Result = TypeVar("Result")


class CollectiveError(GnnloomError):
    """An error that is raised on every rank of a group.

    Attributes:
        reports: True on the one rank that writes the message: the lowest rank on which the error occurred.
        code: exit code, the same on every rank.
    """

    def __init__(self, message: str, *, reports: bool, code: int) -> None:
        super().__init__(message)
        self.reports = reports
        self.code = code


def together(comm: Communicator, action: Callable[[], Result]) -> Result:
    """Run ``action`` on every rank; if it fails on one rank, fail on all. Collective.

    Args:
        action: must not communicate, as a failed rank would leave the others waiting.

    Raises:
        CollectiveError: ``action`` raised a GnnloomError, or an error of storage or memory, on some rank.
    """
    failure: Exception | None = None
    message, code = "", 0
    try:
        result = action()
    except Exception as error:
        reported = in_one_line(error)
        # Other exceptions are defects: whoever started the rank aborts the whole job, so no rank waits for this one.
        if reported is None:
            raise
        failure, (message, code) = error, reported
    # Every rank reaches this exchange, whether or not its action failed, so no rank waits for a failed one.
    codes = comm.gather_numbers([code])[:, 0]
    if not codes.any():
        return result
    first = int(np.flatnonzero(codes)[0])
    # Only exit codes travel. A rank that succeeded does not know the text, and `reports` keeps it from printing one.
    raise CollectiveError(
        message or f"rank {first} failed", reports=first == comm.rank, code=int(codes[first])
    ) from failure
