"""Vectors that tasks map: what is read is what was written, and damage is found whatever it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gnnloom.pipeline.shuffle.mapped_vectors import copy_vector, map_vector, vector_checksum, write_vector
from gnnloom.storage.errors import DamagedWorkError, IncompleteError
from gnnloom.storage.format.arrays import ArrayReader, write_array


@pytest.mark.parametrize("lengths", [[], [0], [1], [7, 0, 5000], [4096, 4096]])
def test_pieces_are_mapped_as_one_vector(tmp_path: Path, lengths: list[int]) -> None:
    pieces = [np.random.default_rng(length).integers(0, 1 << 60, length) for length in lengths]
    write_vector(tmp_path / "new" / "vector", pieces)
    found = map_vector(tmp_path / "new" / "vector", np.int64)
    np.testing.assert_array_equal(found, np.concatenate([np.empty(0, np.int64), *pieces]))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["vector"]


def test_a_copy_of_a_stored_array_equals_the_array(tmp_path: Path) -> None:
    part = np.random.default_rng(0).integers(0, 9, 1000).astype(np.int32)
    reader = ArrayReader(tmp_path, write_array(tmp_path, "part", part, ("vertex",), chunk_rows=64))
    copy_vector(reader, tmp_path / "parts")
    np.testing.assert_array_equal(map_vector(tmp_path / "parts"), part)


def test_a_checksum_tells_one_vector_from_another(tmp_path: Path) -> None:
    for name, values in (("a", [1, 2]), ("b", [1, 2]), ("c", [1, 3])):
        write_vector(tmp_path / name, [np.array(values)])
    first, second, other = (vector_checksum(tmp_path / name) for name in "abc")
    assert first == second != other


def flip(place: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize(
    "change", [flip(0), flip(9), flip(16), flip(30_000), flip(-1), lambda content: content[:-1], lambda _: b""]
)
def test_damage_is_found_also_by_a_process_that_has_mapped_the_vector(
    tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "vector"
    write_vector(path, [np.arange(5000)])
    map_vector(path, np.int64)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DamagedWorkError, match="vector: lane 0 is damaged") as found:
        map_vector(path, np.int64)
    assert found.value.path == path


def test_a_vector_in_the_place_of_another_and_a_missing_one_are_found(tmp_path: Path) -> None:
    write_vector(tmp_path / "one", [np.arange(50)])
    (tmp_path / "one").rename(tmp_path / "other")
    with pytest.raises(DamagedWorkError):
        map_vector(tmp_path / "other")
    with pytest.raises(IncompleteError, match="disappeared"):
        map_vector(tmp_path / "one")
