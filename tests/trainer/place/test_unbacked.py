"""A place without values takes the steps of a loop that take memory of their own, and maps no files."""

from __future__ import annotations

from pathlib import Path

import torch

from gnnloom.trainer.kernels.dispatch import place_without_values
from gnnloom.trainer.place.place import Place


def test_a_place_takes_all_steps_and_one_without_values_the_first() -> None:
    assert list(Place().steps(range(5), 2)) == [0, 1, 2, 3, 4]
    unbacked = place_without_values()
    assert list(unbacked.steps(range(5))) == [0]
    assert list(unbacked.steps(iter("abc"), 2)) == ["a", "b"]
    assert list(unbacked.steps(range(0))) == []


def test_rows_without_values_are_in_no_file(tmp_path: Path) -> None:
    # Nobody has room for them.
    rows = place_without_values().mapped(tmp_path, "rows", (1 << 40, 2), torch.float32)
    rows.write(slice(0, 1), torch.ones(1, 2))
    rows.check()
    assert rows.tensor.shape == (1 << 40, 2)
    assert list(tmp_path.iterdir()) == []
