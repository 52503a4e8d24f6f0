"""A small file that claims to be huge, or expands to much, takes little memory and ends in a result or one error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support import bombs
from support.mpi import TESTS

#: Formats whose bombs are quick to read.
QUICK = ("npy",)
SLOW = ("torch", "npz", "gzip", "zstd", "parquet", "matrix market", "metis", "archive")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in SLOW)])
def test_ten_bombs_take_less_than_64_mib_and_four_times_the_file(tmp_path: Path, name: str) -> None:
    program = [sys.executable, bombs.__file__, str(tmp_path), name]
    done = subprocess.run(
        program, env={"PYTHONPATH": str(TESTS)}, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 10
    assert [each for each in found if each["outcome"].startswith("TRACEBACK")] == []
    assert [each for each in found if each["memory"] > bombs.MOST_MEMORY + 4 * each["size"]] == []
