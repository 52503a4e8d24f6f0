"""Damage to a stored file is found by ``catalog verify``, and never changes a result without an error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.mpi import run_harness


@pytest.mark.slow
def test_damaged_files_are_refused_or_do_not_matter(tmp_path: Path) -> None:
    # This draw has the damage that checksums within a file do not find: a chunk that was exchanged with another one,
    # which trains to another loss unless it is compared with the manifest, and a bit of an uncompressed copy, with
    # which the kernels crash unless it is compared with its checksums.
    printed = run_harness("flips", tmp_path, "--small", "--flips", "5", "--seed", "2616", timeout=600)
    assert "RESULT flips_cases 5 cases" in printed
    assert re.search(r"^shards row chunk: \d+ damages", printed, re.MULTILINE)
    assert re.search(r"^mapped: \d+ damages", printed, re.MULTILINE)


@pytest.mark.long
def test_wrong_numbers_in_a_copy_with_right_checksums_crash_nothing(tmp_path: Path) -> None:
    # Row pointers that fall, and columns that there are not, among others.
    printed = run_harness(
        "flips", tmp_path, "--small", "--flips", "6", "--kind", "sealed copy", "--seed", "1", timeout=600
    )
    assert "RESULT flips_cases 6 cases" in printed


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_damaged_files_of_all_kinds_are_refused_or_do_not_matter(tmp_path: Path) -> None:
    printed = run_harness("flips", tmp_path, "--flips", "150", timeout=3000)
    assert "RESULT flips_cases 150 cases" in printed
