"""Rows that tasks wrote to their lanes, as one list that is split among other tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import OpenFiles
from gnnloom.pipeline.partition.multilevel.pieces import range_pieces
from gnnloom.pipeline.partition.range_rows import RangeRows, RowSpan

#: Rows in memory at a time: 24 MiB of joins.
BLOCK_ROWS = 1 << 20


@dataclass(frozen=True)
class LaneRows:
    """Consecutive rows of the lanes of consecutive tasks; small and picklable.

    Attributes:
        rows: of all tasks.
        task: in whose lane they begin.
        start: number of the first of them in that lane.
        count: number of rows.
    """

    rows: RangeRows
    task: int
    start: int
    count: int

    def blocks(self, files: OpenFiles) -> Iterator[NDArray[np.int64]]:
        """Yield the (num_rows, width) int64 rows, some at a time."""
        task, start, left = self.task, self.start, self.count
        while left:
            lane, num_rows, _ = self.rows.open(files, task)
            last = min(num_rows, start + left)
            for first in range(start, last, BLOCK_ROWS):
                yield self.rows.rows(RowSpan(lane, first, min(last, first + BLOCK_ROWS)))
            task, start, left = task + 1, 0, left - (last - start)


def split_rows(rows: RangeRows, counts: Sequence[int], shares: int) -> list[LaneRows]:
    """Split all rows into at most ``shares`` consecutive lists of about the same length.

    Args:
        counts: number of rows in the lane of each task.
    """
    ends = list(accumulate(counts))
    found, task = [], 0
    for share in range_pieces(range(ends[-1]), shares):
        while ends[task] <= share.start:
            task += 1
        found.append(LaneRows(rows, task, share.start - (ends[task] - counts[task]), len(share)))
    return found
