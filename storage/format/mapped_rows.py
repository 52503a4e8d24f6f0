"""Reads rows of a mapped array with several disk requests in flight."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.format.mapped_pages import MappedPages
from gnnloom.storage.machine_memory import available_memory

#: A thread waits for each page that is not in memory, while the disk can serve many requests at a time.
READERS: Final = 16
#: Below this many bytes, starting threads would take longer than reading the rows.
_FEW_BYTES: Final = 1 << 22


def fits_in_pages(array: NDArray[Any]) -> bool:
    """Whether the pages of a mapped array will mostly be in memory, with room for others."""
    return not out_of_pages([array])


def out_of_pages(arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Those of some mapped arrays whose pages will mostly not be in memory, each with room for others."""
    available = available_memory()
    return [array for array in arrays if 2 * array.nbytes > available]


def take_rows(
    array: NDArray[Any],
    rows: NDArray[np.int64],
    out: NDArray[Any] | None = None,
    threads: Executor | None = None,
    pages: MappedPages | None = None,
) -> NDArray[Any]:
    """Rows of an array, as ``array[rows]`` gives them.

    Args:
        array: (num_rows, ...) a mapped array.
        rows: (num_taken,) int64 existing rows; ascending ones cause the fewest requests.
        out: (num_taken, ...) of the array's dtype, to fill and return; None for a new array.
        threads: ``READERS`` threads that read many rows; None for new ones, whose start takes some milliseconds.
        pages: of the array, where every row that is read is counted.

    Returns:
        (num_taken, ...).
    """
    taken = np.empty((len(rows), *array.shape[1:]), array.dtype) if out is None else out

    def take(places: list[slice]) -> None:
        for place in places:
            # Other modes fill a copy of the output first.
            np.take(array, rows[place], axis=0, out=taken[place], mode="clip")
        if pages is not None:
            pages.count(sum(place.stop - place.start for place in places))

    if taken.nbytes < _FEW_BYTES:
        take([slice(0, len(rows))])
        return taken
    pieces = _pieces(rows)
    if threads is not None:
        list(threads.map(take, pieces))
        return taken
    with ThreadPoolExecutor(READERS) as own:
        list(own.map(take, pieces))
    return taken


def _pieces(rows: NDArray[np.int64]) -> list[list[slice]]:
    """Places of the rows of each reader: those in one range of the array, if the rows are a few ascending runs.

    The vertices of a batch are such runs, one per hop. So a page is read, and mapped, once, and not once for every hop.
    """
    starts = np.concatenate([[0], 1 + np.flatnonzero(rows[1:] < rows[:-1]), [len(rows)]])
    if len(starts) > READERS:
        ends = np.linspace(0, len(rows), READERS + 1, dtype=np.int64).tolist()
        return [[slice(start, stop)] for start, stop in pairwise(ends)]
    runs = [rows[start:stop] for start, stop in pairwise(starts)]
    longest = max(runs, key=len)
    bounds = longest[np.arange(1, READERS) * len(longest) // READERS]
    cuts = [
        np.concatenate([[start], start + np.searchsorted(run, bounds), [start + len(run)]])
        for start, run in zip(starts, runs, strict=False)
    ]
    return [[slice(*cut[reader : reader + 2]) for cut in cuts] for reader in range(READERS)]
