"""Routes rows to the tasks that work on the ranges that a number of each row is in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.shuffle.runs import Index
from gnnloom.pipeline.shuffle.shuffle import RunsWriter


def route_rows(
    out: RunsWriter, name: str, runs: Iterable[NDArray[np.int64]], ranges: Sequence[range], key: int = 0
) -> None:
    """Route rows of one column by the range of a number of theirs.

    Args:
        name: of the column.
        runs: (num_rows, width) int64 each.
        ranges: consecutive.
        key: which number of a row is in the ranges.
    """
    stops = np.array([each.stop for each in ranges], dtype=np.int64)
    for rows in runs:
        offsets, grouped = np.zeros(len(ranges) + 1, dtype=np.int64), np.empty_like(rows)
        _group(rows, key, stops, offsets, grouped)
        out.add(Index.of_offsets(offsets), {name: grouped})


@njit(cache=True, nogil=True)
def _group(
    rows: NDArray[np.int64],
    key: int,
    stops: NDArray[np.int64],
    offsets: NDArray[np.int64],
    grouped: NDArray[np.int64],
) -> None:
    """Group rows by range.

    Args:
        stops: (num_ranges,) int64 ends of the ranges.
        offsets: (num_ranges + 1,) int64 of zeros; range k becomes grouped[offsets[k]:offsets[k + 1]].
    """
    which = np.empty(len(rows), np.int64)
    for k in range(len(rows)):
        which[k] = np.searchsorted(stops, rows[k, key], side="right")
        offsets[which[k] + 1] += 1
    for number in range(1, len(offsets)):
        offsets[number] += offsets[number - 1]
    position = offsets[:-1].copy()
    for k in range(len(rows)):
        grouped[position[which[k]]] = rows[k]
        position[which[k]] += 1
