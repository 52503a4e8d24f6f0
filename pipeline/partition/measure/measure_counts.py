"""What the tasks that store and measure a partition will do, whatever method makes it, counted without running them."""

from __future__ import annotations

from collections.abc import Sequence

from gnnloom.pipeline.partition.part_storage import part_ranges
from gnnloom.pipeline.tasks.phase_counts import PhaseCount

#: Bytes of a part, and of a number in the files of results.
_PART, _NUMBER = 4, 8


def measured_counts(
    block_rows: Sequence[int], block_nnz: Sequence[int], entry_bytes: int, parts: int, *, directions: int = 1
) -> list[PhaseCount]:
    """Count the phases that follow when the parts are known.

    Every task maps the file of the parts, in which it looks up the part of each of its rows and columns. It reads its
    row block in ranges, so what it holds depends on the memory of the worker alone
    (:class:`gnnloom.pipeline.partition.measure.volume.CountBuffers`).

    Args:
        block_rows, block_nnz: rows and nonzeros of each row block; those of the transpose are taken to be alike.
        entry_bytes: of a nonzero in memory.
        directions: 1, or 2 for a directed graph, whose backward products exchange other rows.
    """
    ranges = part_ranges(sum(block_rows))
    vector = _PART * sum(block_rows)
    stored = PhaseCount(
        "store parts",
        len(ranges),
        opens=len(ranges),
        most_opens=1,
        bytes_read=vector,
        bytes_written=vector,
        largest_task=_PART * max((stop - start for start, stop in ranges), default=0),
    )
    looked_up = [_PART * (rows + nnz) for rows, nnz in zip(block_rows, block_nnz, strict=True)]
    pointers = [_NUMBER * (rows + 1) for rows in block_rows]
    whole = [up + offsets + entry_bytes * nnz for up, offsets, nnz in zip(looked_up, pointers, block_nnz, strict=True)]
    # A nonzero makes a row needed by one more part at the most; a pair of parts and its rows are two numbers.
    pairs = sum(2 * _NUMBER * min(parts * parts, nnz) for nnz in block_nnz)
    sums = _NUMBER * 3 * parts * len(block_nnz)
    of_rows = [_PART * rows + offsets for rows, offsets in zip(block_rows, pointers, strict=True)]
    exchange = [_of_blocks("count exchange", whole, pairs)] * directions
    return [stored, *exchange, _of_blocks("measure load", of_rows, sums)]


def _of_blocks(phase: str, read: Sequence[int], written: int) -> PhaseCount:
    """A phase with a task for each row block, which reads so many bytes."""
    return PhaseCount(
        phase,
        len(read),
        opens=len(read),
        most_opens=1,
        bytes_read=sum(read),
        bytes_written=written,
        largest_task=max(read, default=0),
    )
