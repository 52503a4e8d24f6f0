"""Reads rows of a mapped array with several disk requests in flight."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.disk.converted_rows import fill_rows
from gnnloom.storage.machine_memory import available_memory

#: A thread waits for each page that is not in memory, while the disk can serve many requests at a time.
READERS: Final = 16
#: Bytes that are read together; the system cuts requests that are much longer.
BLOCK: Final = 1 << 20
#: Below this many bytes, starting threads would take longer than reading the rows.
_FEW_BYTES: Final = 1 << 22


def fit_in_pages(arrays: Sequence[NDArray[Any]]) -> bool:
    """Whether the pages of some mapped arrays will be in memory together, with as much room for everything else."""
    return 2 * sum(array.nbytes for array in arrays) <= available_memory()


def read_single_pages(arrays: Sequence[NDArray[Any]]) -> None:
    """Tell the system not to read the pages around a page that is needed."""
    for array in arrays:
        mapped = mapping_of(array)
        if mapped is not None:
            mapped.madvise(mmap.MADV_RANDOM)


def read_whole(arrays: Sequence[NDArray[Any]]) -> None:
    """Tell the system to read all pages of some arrays, which a disk does many times as fast as page by page."""
    for array in arrays:
        mapped = mapping_of(array)
        if mapped is not None:
            for start in range(0, len(mapped), BLOCK):
                read_block(mapped, start)


def read_block(mapped: mmap.mmap, start: int) -> None:
    """Tell the system to read the block of a mapping that begins at ``start``."""
    mapped.madvise(mmap.MADV_WILLNEED, start, min(BLOCK, len(mapped) - start))


def mapping_of(array: NDArray[Any]) -> mmap.mmap | None:
    """The mapping that an array is in; None for an array in memory."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def take_rows(
    array: NDArray[Any],
    rows: NDArray[np.int64],
    out: NDArray[Any] | None = None,
    threads: Executor | None = None,
    place: NDArray[np.int64] | None = None,
) -> NDArray[Any]:
    """Rows of an array, as ``array[rows]`` gives them.

    Args:
        array: (num_rows, ...) a mapped array.
        rows: (num_taken,) int64 existing rows; ascending ones cause the fewest requests.
        out: of any dtype that the values are converted to, to fill and return; None for a new array of the array's
            dtype.
        threads: ``READERS`` threads that read many rows; None for new ones, whose start takes some milliseconds.
        place: (num_taken,) int64 where each row goes in ``out``; None for all of ``out``, in order.

    Returns:
        ``out``, or a new array (num_taken, ...).
    """
    taken = np.empty((len(rows), *array.shape[1:]), array.dtype) if out is None else out
    if len(rows) * taken[:1].nbytes < _FEW_BYTES:
        fill_rows(array, rows, taken, place)
        return taken

    outs = np.array_split(taken, READERS) if place is None else [taken] * READERS
    places: Sequence[NDArray[np.int64] | None] = [None] * READERS if place is None else np.array_split(place, READERS)
    with nullcontext(threads) if threads is not None else ThreadPoolExecutor(READERS) as readers:
        list(readers.map(fill_rows, [array] * READERS, np.array_split(rows, READERS), outs, places))
    return taken
