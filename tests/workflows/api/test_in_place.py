"""Inside an MPI job, the functions are collective: rank 0 prepares, and the ranks of the job train."""

from __future__ import annotations

from pathlib import Path

import pytest

import gnnloom
from support.mpi import run_ranks

PROGRAM = Path(__file__).parent / "programs" / "in_place.py"


@pytest.mark.long
def test_a_script_prepares_and_trains_on_the_ranks_of_its_job(tmp_path: Path) -> None:
    done = run_ranks(2, str(PROGRAM), str(tmp_path / "catalog"), str(tmp_path / "classes.npy"))
    assert done.returncode == 0, done.stdout + done.stderr
    run = gnnloom.Run.open("tiny/first", tmp_path / "catalog")
    assert (run.state, len(run.predictions())) == ("finished", 60)
