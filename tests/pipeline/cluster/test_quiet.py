"""Whatever ends a task, the user reads one line: gnnloom's own, without Dask's log and Python's warnings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "failing_tasks.py"


@pytest.mark.long
@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("fail", ": damaged"),
        ("be killed", "several worker processes in a row were killed at the same task"),
        ("lose scheduler", "the connection to the Dask scheduler was lost"),
    ],
)
def test_a_task_that_fails_in_any_way_is_reported_by_one_line(tmp_path: Path, way: str, message: str) -> None:
    program = [sys.executable, str(PROGRAM), way, str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=300)
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line
