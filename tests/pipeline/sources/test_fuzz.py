"""Damaged copies of valid files give a result or one of gnnloom's errors, on one line, for every reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.fuzzing import fuzz, targets

TARGETS = targets()
#: Damaged inputs of each reader; those of whole datasets take longer.
INPUTS = {"archive": 4, "archive contents": 4, "dataset": 4, "links": 4}


@pytest.mark.filterwarnings("ignore:Reading `.npy`")
@pytest.mark.parametrize("name", list(TARGETS))
def test_damaged_inputs_are_read_or_refused(tmp_path: Path, name: str) -> None:
    outcome = fuzz(TARGETS[name], tmp_path, seed=3, inputs=INPUTS.get(name, 40))
    assert outcome.failures == []
    assert outcome.inputs > 0
