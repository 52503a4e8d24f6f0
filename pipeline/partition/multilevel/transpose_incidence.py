"""Transpose an incidence on disk: from the pins of nets to the nets of vertices, by an external sort."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.key_sorter import KeyRange, KeySorter, Segment
from gnnloom.pipeline.partition.multilevel.incidence import Incidence, IncidenceWriter
from gnnloom.storage.errors import BudgetError
from gnnloom.storage.matrix.csr import index_dtype

#: Bytes for each key of a slice: the key and a spare in the sorter, a copy among those that wait for the rest of
#: their column, its row, and the row again as it is stored.
_KEY_BYTES = 40


def transpose_incidence(incidence: Incidence, num_columns: int, folder: Path, memory: int) -> Incidence:
    """Write the rows of every column, ascending.

    Args:
        incidence: the lists to transpose.
        num_columns: all ids of ``incidence`` are below it.
        folder: for the new lists, and for files that are deleted at the end.
        memory: bytes for the buffers of the sort.

    Returns:
        Lists of int32 or int64 rows, one for each of the ``num_columns`` columns.

    Raises:
        BudgetError: a row and a column together need more than 63 bits.
    """
    row_bits = max(1, (incidence.num_rows - 1).bit_length())
    if row_bits + num_columns.bit_length() > 63:
        raise BudgetError(
            f"{incidence.folder}: {incidence.num_rows:,} nets of {num_columns:,} vertices need sort keys of more than"
            " 63 bits; use method random or block"
        )
    folder.mkdir(parents=True, exist_ok=True)
    key_path = folder / "keys"
    counts = _write_keys(incidence, row_bits, num_columns, key_path)
    capacity = max(1, min(memory // _KEY_BYTES, incidence.num_ids))
    sorter = KeySorter(folder / "spill", capacity, None)
    whole = KeyRange(0, (num_columns << row_bits) - 1, [Segment(key_path, 0, incidence.num_ids, 0, 0, None)])
    with IncidenceWriter(folder, index_dtype(incidence.num_rows)) as writer:
        for offset, ids in _whole_columns(sorter, whole, row_bits, counts):
            writer.append(offset, ids)
        transposed = writer.close()
    key_path.unlink()
    return transposed


def _write_keys(incidence: Incidence, row_bits: int, num_columns: int, path: Path) -> NDArray[np.int64]:
    """Write a key ``column << row_bits | row`` for every id; returns the (num_columns,) ids of each column."""
    counts = np.zeros(num_columns, dtype=np.int64)
    with path.open("wb") as file:
        for block in incidence.blocks():
            key = np.empty(len(block.ids), dtype=np.uint64)
            _fill_keys(block.first_row, block.offset, block.ids, row_bits, key, counts)
            file.write(key.data)
    return counts


@njit(cache=True, nogil=True)
def _fill_keys(
    first_row: int,
    offset: NDArray[np.int64],
    ids: NDArray[Any],
    row_bits: int,
    key: NDArray[np.uint64],
    counts: NDArray[np.int64],
) -> None:
    """Fill ``key`` for a block of rows, and add its ids to ``counts``."""
    # The column is in the high bits, so sorted keys are the transposed lists, each ascending.
    for row in range(len(offset) - 1):
        for position in range(offset[row], offset[row + 1]):
            # Counted here, so that the sorted keys can be cut into columns without looking at each of them.
            counts[ids[position]] += 1
            key[position] = (np.uint64(ids[position]) << np.uint64(row_bits)) | np.uint64(first_row + row)


def _whole_columns(
    sorter: KeySorter, whole: KeyRange, row_bits: int, counts: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
    """Yield offsets and rows of consecutive columns, each once all its keys are there."""
    mask = np.uint64((1 << row_bits) - 1)
    end = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    # Keys of a column that the next slice continues; a slice ends anywhere.
    waiting = np.empty(0, dtype=np.uint64)
    column = 0
    for piece in sorter.sort(whole):
        waiting = np.concatenate([waiting, piece.keys])
        # ``right`` also completes the empty columns behind the last full one.
        stop = int(np.searchsorted(end, end[column] + len(waiting), side="right")) - 1
        if stop > column:
            offset = end[column : stop + 1] - end[column]
            yield offset, waiting[: offset[-1]] & mask
            # The copy releases the columns that are written.
            waiting, column = waiting[offset[-1] :].copy(), stop
