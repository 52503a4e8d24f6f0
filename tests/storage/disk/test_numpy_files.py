"""Files in NumPy's format are read while other threads parse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.storage.disk.numpy_files import load_array, map_array, map_plain


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


@pytest.mark.parametrize("shape", [(5,), (0, 3), (2, 3, 4), ()])
def test_a_mapped_array_is_the_stored_one_and_what_is_written_stays(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path, values = tmp_path / "array.npy", np.random.default_rng(0).integers(0, 9, shape, dtype=np.int32)
    np.save(path, values)
    mapped = map_array(path)
    np.testing.assert_array_equal(mapped, values)
    assert mapped.dtype == np.int32
    assert not mapped.flags.writeable
    map_array(path, "r+")[...] = 7
    np.testing.assert_array_equal(np.load(path), np.full_like(values, 7))


def test_a_plain_file_is_mapped_as_a_vector(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    np.arange(5).tofile(path)
    map_plain(path, "int64", "r+")[2] = 9
    assert map_plain(path, "int64").tolist() == [0, 1, 9, 3, 4]


def test_a_mapped_header_that_another_thread_disturbs_is_parsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, parse, calls = tmp_path / "array.npy", np.lib.format.read_array_header_1_0, []
    # A shape that no other test has, as headers are remembered.
    np.save(path, np.arange(11))

    def disturbed(*arguments: Any, **options: Any) -> Any:
        calls.append(parse(*arguments, **options))
        if len(calls) < 3:
            raise SystemError("AST constructor recursion depth mismatch (before=39, after=32)")
        return calls[-1]

    monkeypatch.setattr(np.lib.format, "read_array_header_1_0", disturbed)
    assert map_array(path).tolist() == list(range(11))


def test_what_cannot_be_mapped_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "short.npy", np.arange(100))
    with (tmp_path / "short.npy").open("r+b") as file:
        file.truncate(300)
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "columns.npy", np.asfortranarray(np.ones((2, 3))))
    (tmp_path / "other.npy").write_bytes(b"no array, but as long as the header of one" * 4)
    for name, message in (("short", "shorter"), ("objects", "numbers"), ("columns", "C order"), ("other", "magic")):
        with pytest.raises(ValueError, match=message):
            map_array(tmp_path / f"{name}.npy")
