"""Temporary files that change between a kill and the resumption never change a result silently."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.mpi import run_harness
from support.small_stages import STAGES, make_small
from support.work_changes import REFUSED, RIGHT, UNTOUCHED, WorkChanges, changed_cases


@pytest.mark.slow
def test_eight_changes_of_work_files_give_the_right_bytes_or_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch.setattr)
    # Those whose undisturbed runs take no native partitioner, and no kernels of samplers, take a second each.
    quick = ("ingest of numbers", "transpose", "table", "row shards", "links of a relation")
    changes = WorkChanges(tmp_path, apart=False, stages={name: STAGES[name] for name in quick})
    changes.prepare()
    cases = changed_cases(changes, 5, 8)
    assert {case["answer"] for case in cases} <= {RIGHT, REFUSED, UNTOUCHED}
    assert sum(case["answer"] == RIGHT for case in cases) >= 5


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_changes_of_work_files_of_all_stages_give_the_right_bytes_or_one_error(tmp_path: Path) -> None:
    printed = run_harness("work_changes", tmp_path, "--changes", "100", timeout=3000)
    assert re.search(r"RESULT work_changes 100 changes", printed)
