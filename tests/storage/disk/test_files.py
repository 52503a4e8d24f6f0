"""Folders of small and large files."""

from __future__ import annotations

import os
from pathlib import Path

from gnnloom.storage.disk.files import WORK, tree_bytes


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
