"""Rows of numbers in files, grouped by ranges of their first number: each task reads only the rows of its own range.

A file consists of *runs*, each grouped by range, followed by where the ranges of each run begin and by the number of
runs. The rows of a range keep the order in which they were written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.format.files import written_aside


def write_rows(path: Path, runs: Iterable[NDArray[np.int64]], ranges: Sequence[range]) -> None:
    """Write a file of rows.

    Args:
        runs: (num_rows, width) int64 each; the first number of every row is in one of the ranges.
        ranges: consecutive.
    """
    stops = np.array([each.stop for each in ranges], dtype=np.int64)
    begins, written = [], 0
    with written_aside(path) as aside, aside.open("wb") as file:
        for rows in runs:
            begin, grouped = np.zeros(len(ranges) + 1, dtype=np.int64), np.empty_like(rows)
            _group(rows, stops, begin, grouped)
            file.write(grouped.data)
            begins.append(begin + written)
            written += len(rows)
        file.write(index_of_runs(begins).data)


def rows_within(path: Path, width: int, number: int, num_ranges: int) -> Iterator[NDArray[np.int64]]:
    """Yield the (num_rows, width) int64 rows of range ``number`` of ``num_ranges``, run after run."""
    content = np.memmap(path, np.int64, "r")
    begins = begins_within(content, num_ranges)
    for start, stop in begins[:, number : number + 2].tolist():
        yield np.asarray(content[width * start : width * stop]).reshape(-1, width)


def index_of_runs(begins: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """What ends a file: where the ranges of each run begin, and the number of runs.

    Args:
        begins: (num_ranges + 1,) int64 for each run.
    """
    return np.concatenate([np.empty(0, dtype=np.int64), *begins, np.array([len(begins)], dtype=np.int64)])


def begins_within(content: NDArray[np.int64], num_ranges: int) -> NDArray[np.int64]:
    """(num_runs, num_ranges + 1) int64, where the ranges of each run begin, as :func:`index_of_runs` ends a file.

    Args:
        content: the mapped file.
    """
    num_runs = int(content[-1])
    return np.asarray(content[len(content) - 1 - num_runs * (num_ranges + 1) : -1]).reshape(num_runs, num_ranges + 1)


@njit(cache=True, nogil=True)
def _group(
    rows: NDArray[np.int64], stops: NDArray[np.int64], begin: NDArray[np.int64], grouped: NDArray[np.int64]
) -> None:
    """Group rows by range.

    Args:
        stops: (num_ranges,) int64 ends of the ranges.
        begin: (num_ranges + 1,) int64 of zeros; range k becomes grouped[begin[k]:begin[k + 1]].
    """
    which = np.empty(len(rows), np.int64)
    for k in range(len(rows)):
        which[k] = np.searchsorted(stops, rows[k, 0], side="right")
        begin[which[k] + 1] += 1
    for number in range(1, len(begin)):
        begin[number] += begin[number - 1]
    position = begin[:-1].copy()
    for k in range(len(rows)):
        grouped[position[which[k]]] = rows[k]
        position[which[k]] += 1
