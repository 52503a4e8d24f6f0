"""Turns the output of an MPI launcher about dead ranks into one sentence."""

from __future__ import annotations

import re
import resource
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gnnloom.storage.machine_memory import memory_text
from gnnloom.storage.shared_memory import SHARED_MEMORY
from gnnloom.storage.system_errors import address_space_limit, file_size_limit

#: Lines of MPICH's launcher: its banner about a process that died, and its errors about itself.
_OF_LAUNCHER: Final = re.compile(
    r"={20,}$"
    r"|=   (BAD TERMINATION OF ONE OF YOUR|PID \d+ RUNNING AT|EXIT CODE: \d+|CLEANING UP REMAINING|YOU CAN IGNORE THE)"
    r"|YOUR APPLICATION TERMINATED WITH THE EXIT STRING: "
    r"|This typically refers to a problem with your application\.$"
    r"|Please see the FAQ page for debugging suggestions$"
    r"|\[(mpiexec|proxy:\S*)@\S+\] "
)
_PROCESS: Final = re.compile(r"=   PID (\d+) RUNNING AT (\S+)")
_SIGNAL: Final = re.compile(r"EXIT STRING: .* \(signal (\d+)\)")
#: Messages of Python, the dynamic loader, OpenMP, OpenBLAS and torch when memory is used up.
_OUT_OF_MEMORY: Final = re.compile(
    r"cannot allocate memory|can't allocate memory|MemoryError|failed to map segment|bad_alloc|out of memory"
    r"|can't start new thread|thread creation failed|pthread_create failed|failed to allocate",
    re.IGNORECASE,
)
_OUT_OF_FILES: Final = re.compile(r"Too many open files|max open files limit")
#: Messages of MPICH and its transport when they cannot continue.
_MPI_FAILED: Final = re.compile(r"Fatal error in internal_|UCX  ERROR|ucp_worker\.c:\d+  Fatal")
#: Up to this limit of open files, any failure of MPI is attributed to the limit.
_FEW_FILES: Final = 128
#: Up to this limit of file sizes, a failure of MPI is attributed to the limit: its shared memory is a file.
_SMALL_FILES: Final = 1 << 30
#: Beginnings of the lines in which a crashing rank gives the reason.
_CRASH: Final = re.compile(r"Fatal|rror\b|terminate called|ssertion")
#: Free shared memory below which a job of several ranks may fail.
_LEAST_SHARED: Final = 64 << 20
#: Signals that end a process because of its own fault.
_CRASHES: Final = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGSYS})

_AGAIN: Final = "finished work is kept, run the command again to continue"


def is_of_launcher(line: str) -> bool:
    """Whether the launcher printed a line, rather than a rank."""
    return _OF_LAUNCHER.match(line) is not None


def of_ranks(lines: Sequence[str]) -> list[str]:
    """The lines that ranks printed, without empty ones at both ends."""
    return "\n".join(line for line in lines if not is_of_launcher(line)).strip("\n").splitlines()


def why_ended(code: int, lines: Sequence[str], shared: Path = SHARED_MEMORY) -> str | None:
    """Explain why ranks ended without a report, and what to do about it.

    Args:
        code: exit code of the launcher; below zero for the signal that ended it.
        lines: last lines that the launcher and the ranks printed.
        shared: folder of the shared memory.

    Returns:
        The explanation; None if the lines do not give one. A rank that raised an exception has printed its traceback.
    """
    text = "\n".join(lines)
    limit = address_space_limit()
    found = _SIGNAL.search(text)
    # The launcher ends the other ranks by SIGTERM, and may report that signal.
    number = int(found[1]) if found else 0
    if limit and (_OUT_OF_MEMORY.search(text) or number in {*_CRASHES, signal.SIGTERM}):
        return f"the ranks ran out of memory: a process may use only {limit}; raise the limit"
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    # With few descriptors, MPI may fail in ways that do not mention them.
    if _OUT_OF_FILES.search(text) or (files < _FEW_FILES and _MPI_FAILED.search(text)):
        return f"the ranks could not start: a process may open only {files} files (ulimit -n); raise the limit"
    limit_of_files = file_size_limit()
    if limit_of_files is not None and limit_of_files < _SMALL_FILES and _MPI_FAILED.search(text):
        return (
            f"the ranks could not start: a file, or shared memory, may have only {memory_text(limit_of_files)} (ulimit"
            " -f); raise the limit"
        )
    if code < 0:
        return f"mpiexec, which starts the ranks, was ended by {_name(-code)}; {_AGAIN}"
    return _died(number, lines, shared) if number else None


def _died(number: int, lines: Sequence[str], shared: Path) -> str:
    """The sentence about a rank that a signal ended."""
    process = _PROCESS.search("\n".join(lines))
    rank = f"a rank (process {process[1]} on {process[2]})" if process else "a rank"
    if number == signal.SIGKILL:
        return f"{rank} was killed ({_name(number)}), as the system does when memory runs out; {_AGAIN}"
    free = _free(shared)
    # MPICH combines the signal of the failed rank with the signals of ranks that it ended: SIGTERM may stand for any
    # signal.
    if number in {signal.SIGBUS, signal.SIGTERM} and free < _LEAST_SHARED:
        return (
            f"{rank} could not use shared memory: {shared} has {memory_text(free)} free; make room there, or make it"
            " larger (in Docker with --shm-size=1g)"
        )
    if number == signal.SIGBUS:
        why = "a file that it had mapped was cut short, or its disk failed"
        return f"{rank} could not read mapped memory ({_name(number)}): {why}; {_AGAIN}"
    ended = "crashed or was ended" if number == signal.SIGTERM else f"crashed ({_name(number)})"
    said = of_ranks(lines)
    begun = next((position for position, line in enumerate(said) if _CRASH.search(line)), len(said))
    return "\n".join([f"{rank} {ended}; {_AGAIN}", *said[begun:]])


def _free(shared: Path) -> int:
    try:
        return shutil.disk_usage(shared).free
    except OSError:
        return 0


def _name(number: int) -> str:
    try:
        return f"signal {number}, {signal.Signals(number).name}"
    except ValueError:
        return f"signal {number}"
