"""Turning an incidence round: from the pins of nets to the nets of vertices, by an external sort."""

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

#: Bytes for each key of a slice: itself and a spare in the sorter, then itself beside those that wait, its row and
#: that once more as it is stored.
_KEY_BYTES = 40


def turn_incidence(incidence: Incidence, num_columns: int, folder: Path, memory: int) -> Incidence:
    """The rows of every column, ascending.

    Args:
        num_columns: the ids of ``incidence`` are below it.
        memory: bytes for the sort's buffers.

    Raises:
        BudgetError: rows and columns together need more than 63 bits.
    """
    row_bits = max(1, (incidence.num_rows - 1).bit_length())
    if row_bits + num_columns.bit_length() > 63:
        raise BudgetError(f"{incidence.num_rows:,} nets of {num_columns:,} vertices need keys of more than 63 bits")
    folder.mkdir(parents=True, exist_ok=True)
    key_path = folder / "keys"
    counts = _write_keys(incidence, row_bits, num_columns, key_path)
    capacity = max(1, min(memory // _KEY_BYTES, incidence.num_ids))
    sorter = KeySorter(folder / "spill", capacity, None)
    whole = KeyRange(0, (num_columns << row_bits) - 1, [Segment(key_path, 0, incidence.num_ids, 0, 0, None)])
    with IncidenceWriter(folder, index_dtype(incidence.num_rows)) as writer:
        for offset, ids in _whole_rows(sorter, whole, row_bits, counts):
            writer.append(offset, ids)
        turned = writer.close()
    key_path.unlink()
    return turned


def _write_keys(incidence: Incidence, row_bits: int, num_columns: int, path: Path) -> NDArray[np.int64]:
    """Write a key ``column << row_bits | row`` for every id; returns how many each column has."""
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
    for row in range(len(offset) - 1):
        for position in range(offset[row], offset[row + 1]):
            counts[ids[position]] += 1
            key[position] = (np.uint64(ids[position]) << np.uint64(row_bits)) | np.uint64(first_row + row)


def _whole_rows(
    sorter: KeySorter, whole: KeyRange, row_bits: int, counts: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
    """Offsets and ids of consecutive columns; a column whose keys several slices share comes when it is whole."""
    mask = np.uint64((1 << row_bits) - 1)
    end = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    waiting = np.empty(0, dtype=np.uint64)
    column = 0
    for piece in sorter.sort(whole):
        waiting = np.concatenate([waiting, piece.keys])
        stop = int(np.searchsorted(end, end[column] + len(waiting), side="right")) - 1
        if stop > column:
            offset = end[column : stop + 1] - end[column]
            yield offset, waiting[: offset[-1]] & mask
            waiting, column = waiting[offset[-1] :].copy(), stop
