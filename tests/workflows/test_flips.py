"""Damage to a stored file is found by ``catalog verify``, and never changes a result without an error."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.mpi import TESTS, rank_command


def flips_end(folder: Path, *options: str, timeout: float) -> str:
    """Run the harness in a process that is forked from the server of ranks; returns what it prints."""
    # It forks every command, which is safe only without other threads.
    program = [*rank_command(), str(TESTS / "support" / "flips.py")]
    with (folder / "output.txt").open("w+") as output:
        done = subprocess.run(
            [*program, *options],
            cwd=TESTS,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
        output.seek(0)
        printed = output.read()
    assert done.returncode == 0, printed[-20_000:]
    return printed


def test_damaged_files_are_refused_or_do_not_matter(tmp_path: Path) -> None:
    printed = flips_end(tmp_path, "--small", "--flips", "8", "--seed", "1", timeout=600)
    assert "RESULT flips_cases 8 cases" in printed


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_damaged_files_of_all_kinds_are_refused_or_do_not_matter(tmp_path: Path) -> None:
    printed = flips_end(tmp_path, "--flips", "150", timeout=3000)
    assert "RESULT flips_cases 150 cases" in printed
