"""An MPI job that cannot run its recipe ends in seconds, with the documented exit code and one message."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support.recipes import GNNLOOM, TINY, MpiJob, forked_program, run_arguments

MPI4PY = (sys.executable, "-m", "mpi4py", "-m", "gnnloom.workflows.cli.main")


@pytest.mark.long
@pytest.mark.parametrize("program", [(GNNLOOM,), pytest.param(MPI4PY, marks=pytest.mark.long)])
def test_an_error_in_the_client_ends_the_job_with_its_code_and_one_message(
    tmp_path: Path, program: tuple[str, ...]
) -> None:
    job = MpiJob(4, run_arguments("quick-start", tmp_path, *TINY, "vertices.classes=3"), program)
    code, out, log = job.finish(timeout=120)
    assert (code, out) == (3, "")
    assert log.count("error: ") == 1
    assert "set classes to 16" in log
    assert "Traceback" not in log
    assert "Abort" not in log


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "settings", "message"),
    [
        (2, (), "but this MPI job has 2"),
        pytest.param(2, ("train.lrr=1",), "did you mean lr", marks=pytest.mark.long),
        (3, ("train.ranks=3", "cluster.memory=900T"), "[cluster] memory = 900T, but each of the 3 ranks on this"),
    ],
)
def test_an_error_that_all_ranks_see_is_printed_once(
    tmp_path: Path, ranks: int, settings: tuple[str, ...], message: str
) -> None:
    code, _, log = MpiJob(ranks, run_arguments("quick-start", tmp_path, *TINY, *settings), forked_program()).finish(
        timeout=120
    )
    assert code == 3
    assert log.count("error: ") == 1
    assert message in log
