"""Small files of JSON, and folders of small and large files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.disk.files import WORK, parse_json, tree_bytes
from gnnloom.storage.disk.groups import METADATA
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.listing import refresh_list


def test_the_size_of_a_tree_is_without_the_holes_of_temporary_files(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / WORK / "spill"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "small").write_bytes(b"12345")
        with (folder / "sparse").open("wb") as file:
            os.pwrite(file.fileno(), b"1", 1 << 30)
    in_work = tree_bytes(tmp_path / WORK)
    assert 5 < in_work < 1 << 20
    # Anything else counts in full.
    assert tree_bytes(tmp_path) == in_work + 5 + (1 << 30) + 1


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "-1" + "0" * 400 + ".5"])
def test_numbers_that_cannot_be_written_as_json_are_damage(tmp_path: Path, number: str) -> None:
    with pytest.raises(CorruptError, match=r"^f: "):
        parse_json(f'{{"a": [{number}]}}'.encode(), "f")
    assert parse_json(b'{"a": [0.5, -1e-3, 7]}', "f") == {"a": [0.5, -1e-3, 7]}
    # The list of a dataset is written into a file that has what other programs put there.
    dataset = Catalog(tmp_path).create("web")
    (dataset.path / METADATA).write_text(f'{{"attributes": {{"a": {number}}}, "node_type": "group"}}')
    with pytest.raises(CorruptError, match="not valid JSON"):
        refresh_list(dataset.path)
