"""What a process reads of mapped arrays does not stay in its memory, and the contents stay as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gnnloom.storage.format.mapped_pages import MappedPages
from gnnloom.storage.format.mapped_rows import take_rows


def resident(path: Path) -> int:
    """Bytes of a mapped file that are in the memory of this process."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    found = 0
    for line in lines:
        if line.endswith(str(path)):
            found += 1024 * int(next(each for each in lines if each.startswith("Rss:")).split()[1])
    return found


def test_pages_are_unmapped_after_enough_accesses(tmp_path: Path) -> None:
    path = tmp_path / "given.npy"
    given = np.arange(1 << 22).reshape(-1, 64)
    np.save(path, given)
    mapped = np.load(path, mmap_mode="r")
    # A view of a view, and an array that is not mapped.
    pages = MappedPages([np.asarray(mapped)[1:], np.zeros(3)], 100)
    rows = np.arange(len(given))
    for _ in range(2):
        np.testing.assert_array_equal(take_rows(mapped, rows), given)
        assert resident(path) > path.stat().st_size // 2
        pages.count(99)
        assert resident(path) > path.stat().st_size // 2
        pages.count(1)
        assert resident(path) == 0
    np.testing.assert_array_equal(take_rows(mapped, rows, pages=pages), given)
    assert resident(path) < path.stat().st_size // 2
