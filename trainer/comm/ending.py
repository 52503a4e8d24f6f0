"""Ends a rank: together with all others, or for an error that only this rank knows about.

An error is printed, and reported in a file to the process that started the ranks, if that process asks for one.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import stat
import sys
import termios
import time
import traceback
from typing import NoReturn

from gnnloom.storage.errors import in_one_line
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.reported_error import ReportedError
from gnnloom.trainer.comm.transports.registry import LaunchedRank

#: Maximum number of seconds that a rank that ends the job waits until the launcher has read its output.
_READ_SECONDS = 5.0
_POLL_SECONDS = 1e-3


def report(error: CollectiveError) -> int:
    """Print an error that all ranks know about, on the rank that reports it; returns the exit code."""
    if error.reports:
        ReportedError(str(error), error.code).write(LaunchedRank.from_environment().rank)
        sys.stderr.write(f"error: {error}\n")
    return error.code


def _abort(comm: Communicator, code: int) -> NoReturn:
    """End all ranks of the job at once, after all output of this rank was read."""
    # The process ends inside the transport, where Python's buffered output would be lost.
    for stream in (sys.stdout, sys.stderr):
        # The reader may be gone, or the stream may not be a file: the other ranks must not wait for that.
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
            wait_until_read(stream.fileno())
    comm.abort(code)


def end_job(comm: Communicator, error: BaseException) -> NoReturn:
    """End the job for an error that only this rank knows about: in one line, or with the traceback of a defect.

    The other ranks wait for this one somewhere, so they cannot leave by themselves.
    """
    reported = in_one_line(error)
    where = f"rank {comm.rank}" if comm.size > 1 else ""
    if reported is None:
        lines = "".join(traceback.format_exception(error))
        ReportedError(f"{where or 'the rank'} failed\n{lines}".rstrip("\n"), 1).write(comm.rank)
        sys.stderr.write(lines)
        _abort(comm, 1)
    message, code = reported
    message = f"{where}: {message}" if where else message
    ReportedError(message, code).write(comm.rank)
    # One write, so that lines of several ranks do not mix.
    sys.stderr.write(f"error: {message}\n")
    _abort(comm, code)


def wait_until_read(file: int, seconds: float = _READ_SECONDS) -> None:
    """Wait until a pipe is empty, for at most ``seconds`` seconds; return at once if ``file`` is not a pipe.

    MPICH's launcher ends a job as soon as a rank aborts it, and loses output that it has not read by then, such as the
    line with the reason.
    """
    ends = time.monotonic() + seconds
    while _unread_bytes(file) and time.monotonic() < ends:
        time.sleep(_POLL_SECONDS)


def _unread_bytes(file: int) -> int:
    if not stat.S_ISFIFO(os.fstat(file).st_mode):
        return 0
    unread = array.array("i", [0])
    fcntl.ioctl(file, termios.FIONREAD, unread)
    return unread[0]
