"""Damaged copies of valid files give a result or one of gnnloom's errors, on one line, for every reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.fuzzing import fuzz, targets
from support.typed_inputs import typed_inputs

TARGETS, TYPED = targets(), [name for name, _ in typed_inputs()]
#: Damaged inputs of each reader; those of whole datasets take longer.
INPUTS = {
    **dict.fromkeys(TYPED, 4),
    "archive": 4,
    "archive contents": 4,
    "dataset": 4,
    "drawn links": 4,
    "links": 4,
    "propagated": 8,
}
_NAMES = [pytest.param(name, marks=pytest.mark.slow if name in TYPED else ()) for name in TARGETS]


@pytest.mark.filterwarnings("ignore:Reading `.npy`")
@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("inputs", [0, pytest.param(40, marks=pytest.mark.long)])
def test_damaged_inputs_are_read_or_refused(tmp_path: Path, name: str, inputs: int) -> None:
    outcome = fuzz(TARGETS[name], tmp_path, seed=3, inputs=inputs or INPUTS.get(name, 20))
    assert outcome.failures == []
    assert outcome.inputs > 0
