"""Copying ranges of bytes: the same bytes in the same order, in full writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort import byte_ranges
from gnnloom.pipeline.external_sort.byte_ranges import ByteRange, copy_ranges
from gnnloom.pipeline.external_sort.raw_files import write_at
from gnnloom.storage.errors import CorruptError

CONTENT = bytes(range(256))


@settings(max_examples=60, deadline=None)
@given(spans=st.lists(st.tuples(st.integers(0, 256), st.integers(0, 256)), max_size=30), block=st.integers(1, 300))
def test_ranges_follow_each_other_in_as_few_writes_as_blocks(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int]], block: int
) -> None:
    folder = tmp_path_factory.mktemp("ranges")
    (folder / "source").write_bytes(CONTENT)
    writes: list[int] = []

    def counted(descriptor: int, offset: int, array: NDArray[Any]) -> None:
        writes.append(array.nbytes)
        write_at(descriptor, offset, array)

    with (folder / "source").open("rb") as source, (folder / "target").open("wb") as target:
        ranges = [ByteRange(source.fileno(), folder / "source", *span) for span in spans]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(byte_ranges, "COPY_BYTES", block)
            patch.setattr(byte_ranges, "write_at", counted)
            end = copy_ranges(ranges, target.fileno(), 5)
    expected = b"".join(CONTENT[start:stop] for start, stop in spans)
    assert (folder / "target").read_bytes() == (bytes(5) + expected if expected else b"")
    assert end == 5 + len(expected)
    # Every write but the last fills a block.
    assert writes == [block] * (len(expected) // block) + [len(expected) % block]


def test_a_file_that_ends_early_is_refused(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(CONTENT)
    with (tmp_path / "source").open("rb") as source, (tmp_path / "target").open("wb") as target:
        beyond = ByteRange(source.fileno(), tmp_path / "source", 250, 260)
        with pytest.raises(CorruptError, match="source: ends at byte 256, expected 4 bytes more"):
            copy_ranges([beyond], target.fileno(), 0)
