"""A memory map of a stored array equals the array."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gnnloom.storage.format import memory_map
from gnnloom.storage.format.arrays import ArrayReader, write_array


@pytest.mark.parametrize("shape", [(1000,), (70, 3), (0,), (0, 4)])
def test_a_mapped_copy_equals_the_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]
) -> None:
    monkeypatch.setattr(memory_map, "_COPY_ROWS", 64)
    data = np.random.default_rng(0).normal(size=shape)
    reader = ArrayReader(tmp_path, write_array(tmp_path, "values", data, ("row", "feature")[: len(shape)]))
    np.testing.assert_array_equal(memory_map.map_copy(reader, tmp_path / "copy"), data)
