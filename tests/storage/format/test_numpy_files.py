"""Files in NumPy's format are read while other threads parse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.storage.format.numpy_files import load_array


@pytest.mark.parametrize("mmap_mode", [None, "r"])
def test_a_header_that_another_thread_disturbs_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mmap_mode: Any
) -> None:
    path, load, calls = tmp_path / "array.npy", np.load, []
    np.save(path, np.arange(5))

    def disturbed(*arguments: Any, **options: Any) -> Any:
        calls.append(load(*arguments, **options))
        if len(calls) < 3:
            raise SystemError("AST constructor recursion depth mismatch (before=39, after=32)")
        return calls[-1]

    monkeypatch.setattr(np, "load", disturbed)
    assert load_array(path, mmap_mode).tolist() == [0, 1, 2, 3, 4]
    calls.clear()
    with path.open("rb") as file:
        assert load_array(file).tolist() == [0, 1, 2, 3, 4]
    calls.clear()


def test_an_error_that_stays_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise SystemError("broken")

    monkeypatch.setattr(np, "load", broken)
    with pytest.raises(SystemError, match="broken"):
        load_array(tmp_path / "array.npy")


def test_arrays_of_python_objects_are_refused(tmp_path: Path) -> None:
    # The only way to make such a file, which must not be read.
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="pickle"):
        load_array(tmp_path / "objects.npy")
