"""Sizes with which little data has as many files, pages, merges and chunks as much data by default."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from gnnloom.storage.disk.work_folder import BESIDE, Scratch

#: Few tasks share files, of pages so short that every lane has several, as many tasks do with long lanes.
SMALL_LANES: Final = Scratch(files=2, page_bytes=1000)


def merging(sources: int, scratch: Scratch = BESIDE) -> Scratch:
    """The same sizes with levels of merges, until a task reads at most ``sources`` sources of any position."""
    return replace(scratch, sources=sources, source_bytes=1 << 30)


def small_chunks(patch: pytest.MonkeyPatch, num_bytes: int) -> None:
    """Make the chunks of arrays small. They are part of the format, and not given to a stage."""
    patch.setattr("gnnloom.storage.format.arrays.CHUNK_BYTES", num_bytes)
