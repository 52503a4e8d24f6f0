"""A rank that ends the job has its reason printed before the job ends."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path
from typing import NoReturn

import pytest

from gnnloom.trainer.comm.ending import end_job, wait_until_read
from gnnloom.trainer.comm.transports.mpi import find_mpiexec
from gnnloom.trainer.job.launch import rank_environment
from support.lone import LoneCommunicator
from support.mpi import MPI_PYTHON, TESTS, rank_command


class _EndingRank(LoneCommunicator):
    """Looks at a pipe when it ends the job."""

    def __init__(self, reading: int) -> None:
        super().__init__()
        self.reading = reading

    def abort(self, code: int) -> NoReturn:
        os.set_blocking(self.reading, False)
        with pytest.raises(BlockingIOError):
            os.read(self.reading, 1)
        raise SystemExit(code)


def test_a_rank_ends_the_job_when_the_reason_has_been_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    said: list[bytes] = []
    reader = threading.Timer(0.2, lambda: said.append(os.read(reading, 4096)))
    reader.start()
    with os.fdopen(writing, "w") as errors:
        monkeypatch.setattr("sys.stderr", errors)
        with pytest.raises(SystemExit):
            end_job(_EndingRank(reading), MemoryError("here"))
    # The pipe is empty a moment before the thread has noted what it read.
    reader.join()
    assert said == [b"error: out of memory (here)\n"]
    os.close(reading)


@pytest.mark.long
def test_a_slow_launcher_prints_why_a_rank_ended_the_job() -> None:
    program = str(TESTS / "trainer" / "programs" / "last_words.py")
    # Without the wait, two of five jobs end before the launcher has read anything.
    for _ in range(3):
        done = subprocess.run(
            # Ranks of their own, as the program stops the process that has started it.
            [find_mpiexec(), "-n", "3", *MPI_PYTHON, program],
            env=rank_environment(3),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert "error: rank 1: out of memory (of rank 1)\n" in done.stderr
        assert done.returncode == 1


def test_a_full_pipe_is_waited_for_until_it_has_been_read() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"the reason")
    reader = threading.Timer(0.2, os.read, (reading, 4096))
    started = time.monotonic()
    reader.start()
    wait_until_read(writing, 60)
    assert 0.2 <= time.monotonic() - started < 60
    os.close(reading)
    os.close(writing)


def test_a_pipe_that_nobody_reads_and_a_file_do_not_keep_a_rank(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"the reason")
    started = time.monotonic()
    wait_until_read(writing, 0.1)
    assert time.monotonic() - started >= 0.1
    os.close(reading)
    os.close(writing)
    with (tmp_path / "log").open("wb") as file:
        file.write(b"the reason")
        file.flush()
        wait_until_read(file.fileno(), 60)
    assert time.monotonic() - started < 60


def test_a_rank_without_output_still_ends_the_job_with_the_reason() -> None:
    program = (
        "import sys; from gnnloom.trainer.comm.ending import end_job; from gnnloom.trainer.comm.mpi import world;"
        " sys.stdout.close(); end_job(world(), MemoryError('here'))"
    )
    command = [*rank_command(), "-c", program]
    done = subprocess.run(command, env=rank_environment(1), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "error: out of memory (here)" in done.stderr
    assert "Traceback" not in done.stderr
