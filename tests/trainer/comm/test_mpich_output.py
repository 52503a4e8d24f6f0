"""What the MPI launcher prints about ranks that died becomes one sentence; what ranks print stays."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnnloom.trainer.comm.transports.mpich_output import is_of_launcher, of_ranks, why_ended


def banner(code: int, ended: str) -> list[str]:
    """As MPICH prints it."""
    return f"""
===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 22331 RUNNING AT node7
=   EXIT CODE: {code}
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
===================================================================================
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: {ended}
This typically refers to a problem with your application.
Please see the FAQ page for debugging suggestions""".splitlines()


RANK = "a rank (process 22331 on node7)"
AGAIN = "finished work is kept, run the command again to continue"


@pytest.mark.parametrize(
    ("code", "lines", "says"),
    [
        (9, banner(9, "Killed (signal 9)"), f"{RANK} was killed (signal 9, SIGKILL), as the system does when memory"),
        (11, banner(11, "Segmentation fault (signal 11)"), f"{RANK} crashed (signal 11, SIGSEGV); {AGAIN}"),
        (15, banner(9, "Terminated (signal 15)"), f"{RANK} crashed or was ended; {AGAIN}"),
        (7, banner(7, "Bus error (signal 7)"), f"{RANK} could not read mapped memory (signal 7, SIGBUS): a file that"),
        (-9, ["epoch 1"], f"mpiexec, which starts the ranks, was ended by signal 9, SIGKILL; {AGAIN}"),
        (255, ["[proxy:0@node7] create (launch.c:24): pipe error (Too many open files)"], "the ranks could not start"),
        (
            143,
            ["[1.2] [vm:1:0] mm_posix.c:238  UCX  ERROR shm_open failed: Too many open files"],
            "the ranks could not",
        ),
    ],
)
def test_the_end_of_a_rank_is_one_sentence(code: int, lines: list[str], says: str, tmp_path: Path) -> None:
    why = why_ended(code, ["run r1: no forecast", *lines], tmp_path)
    assert why is not None
    assert why.startswith(says)
    assert "\n" not in why


def test_a_crash_shows_what_the_rank_said_about_it(tmp_path: Path) -> None:
    said = ["terminate called after throwing an instance of 'std::out_of_range'", "  what():  at"]
    why = why_ended(6, ["epoch 1", *said, *banner(6, "Aborted (signal 6)")], tmp_path)
    assert why == "\n".join([f"{RANK} crashed (signal 6, SIGABRT); {AGAIN}", *said])


def test_what_ranks_print_is_kept_and_explains_itself() -> None:
    lines = ["", "Traceback (most recent call last):", "ZeroDivisionError: division by zero", *banner(1, "")[:-3]]
    assert of_ranks(lines) == lines[1:3]
    assert why_ended(1, lines) is None
    assert not any(map(is_of_launcher, ["= 1", "=== figures ===", "[mpi] is fine", "[1.2] UCX ERROR"]))


@pytest.fixture
def limited() -> Iterator[None]:
    """A limit of the address space, far above what this process uses."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 44, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize(
    "line",
    [
        "OSError: [Errno 12] Cannot allocate memory",
        "ImportError: libtorch_cpu.so: failed to map segment from shared object",
        "RuntimeError: can't start new thread",
        "libgomp: Thread creation failed: Resource temporarily unavailable",
    ],
)
def test_a_limit_of_the_address_space_is_named(line: str) -> None:
    limit = "a process may use only 16,777,216 MiB of address space (ulimit -v)"
    why = why_ended(1, ["Traceback (most recent call last):", line])
    assert why == f"the ranks ran out of memory: {limit}; raise the limit"
