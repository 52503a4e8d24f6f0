"""A rank ends with the process that started it, also while MPI starts and waits for the other ranks."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import psutil
import pytest

from gnnloom.trainer.comm.transports.mpi import find_mpiexec
from support.mpi import MPI_PYTHON, rank_command

#: Rank 0 waits in MPI's start for rank 1, which does not start it.
WAITS = """
import os, sys, time
from pathlib import Path

if os.environ["PMI_RANK"] == "1":
    time.sleep(600)
from gnnloom.trainer.comm.transports.mpi import join
Path(sys.argv[1]).write_text(str(os.getpid()))
join()
"""


@pytest.mark.slow
@pytest.mark.parametrize("forked", [False, True])
def test_a_rank_that_waits_for_others_in_the_start_of_mpi_ends_with_its_parent(tmp_path: Path, forked: bool) -> None:
    program, written = tmp_path / "waits.py", tmp_path / "pid"
    program.write_text(WAITS)
    python = rank_command() if forked else list(MPI_PYTHON)
    with subprocess.Popen([find_mpiexec(), "-n", "2", *python, str(program), str(written)]) as launcher:
        started, others = psutil.Process(launcher.pid), list[psutil.Process]()
        try:
            while not (written.exists() and written.read_text()):
                assert launcher.poll() is None
                time.sleep(0.05)
            rank = psutil.Process(int(written.read_text()))
            # It is in MPI's start once it has loaded MPI's library; a forked rank has it from the beginning.
            while not any("libmpi" in each.path for each in rank.memory_maps()):
                time.sleep(0.05)
            time.sleep(0.3)
            others = started.children(recursive=True)
            (parent,) = started.children()
            parent.kill()
            gone, _ = psutil.wait_procs([rank], timeout=20)
            assert gone == [rank]
        finally:
            for each in {*others, started}:
                if each.is_running():
                    each.kill()
