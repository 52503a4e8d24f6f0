"""Public operations on a whole dataset, in any order, disturbed and damaged, leave what a model says.

The machine and its model are in :mod:`support.dataset_machine`. They run in a process that is forked from the server of
ranks, which has imported everything and has no threads, because every operation is forked from it in turn.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.mpi import run_harness

#: Most steps after the beginning of an example.
STEPS = 20


def machine_steps(folder: Path, *options: str, timeout: float) -> int:
    """Run the machine; returns its number of steps."""
    printed = run_harness("dataset_machine", folder, "--steps", str(STEPS), *options, timeout=timeout)
    found = re.search(r"^RESULT machine_steps (\d+) steps$", printed, re.MULTILINE)
    assert found is not None, printed
    return int(found[1])


@pytest.mark.slow
def test_operations_on_a_dataset_in_any_order_leave_what_the_model_says(tmp_path: Path) -> None:
    # This draw has every kind of operation.
    assert machine_steps(tmp_path, "--examples", "2", "--seed", "7", timeout=600) >= STEPS


@pytest.mark.long
@pytest.mark.timeout(5400)
def test_two_thousand_operations_leave_what_the_model_says(tmp_path: Path) -> None:
    assert machine_steps(tmp_path, "--least", "2000", timeout=5000) >= 2000
