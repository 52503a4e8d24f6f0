"""Numbers the vertices of a batch: known vertices by their positions, and new ones after them, in ascending order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.errors import InputError
from gnnloom.storage.kernels import copy_elements, kernel
from gnnloom.storage.matrix.csr import INT32_WIDTH
from gnnloom.storage.sampling.layers.graph_view import Rows
from gnnloom.storage.sampling.layers.vertex_table import build_table, find_slot, slot_bits


def number_columns(
    vertices: NDArray[np.int64], found: Sequence[Rows]
) -> tuple[NDArray[np.int64], list[NDArray[np.int32]]]:
    """Number the columns of some rows together, and sort the entries of each row by column.

    Args:
        vertices: (num_known,) int64 vertices that the batch has already.
        found: rows whose columns are vertices of this type; their entries are sorted in place.

    Returns:
        (num_vertices,) int64 known vertices and then new ones, ascending; and for each of the rows, the (nnz,) int32
        columns as positions in these, ascending within a row.

    Raises:
        InputError: there would be more than 2^31 - 1 vertices.
    """
    count, drawn = len(vertices), [rows.column for rows in found]
    numbers, new, slots = _number(drawn[0] if len(drawn) == 1 else np.concatenate(drawn), vertices)
    if count + len(new) > INT32_WIDTH:
        raise InputError(f"a batch of {count + len(new):,} vertices: use smaller fan-outs or batches")
    ordered = np.sort(new)
    rank = _ranks(slots, np.concatenate([vertices, new]), ordered, count)
    columns = np.split(numbers, np.cumsum([len(each) for each in drawn])[:-1])
    for rows, column in zip(found, columns, strict=True):
        _order_rows(rows.indptr, column, rows.entry, count, rank)
    return np.concatenate([vertices, ordered]), columns


@kernel
def _number(
    drawn: NDArray[Any], vertices: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]:
    """Number the columns of drawn entries: vertices by their positions, new ones from there on as they come.

    Returns:
        The (num_entries,) int32 numbers, the new vertices, and the hash table of all.
    """
    count, total = len(vertices), len(vertices)
    bits = slot_bits(2 * count)
    known = np.empty(1 << bits, np.int64)
    copy_elements(vertices, known)
    slots = build_table(known, count, bits)
    columns = np.empty(len(drawn), np.int32)
    for k in range(len(drawn)):
        vertex = int(drawn[k])
        slot = find_slot(slots, bits, known, vertex)
        if slots[slot] < 0:
            if 2 * total >= len(slots):
                # Half full: twice the slots. The list has a place for each slot, so it never overflows.
                bits += 1
                larger = np.empty(1 << bits, np.int64)
                copy_elements(known[:total], larger)
                known = larger
                slots = build_table(known, total, bits)
                slot = find_slot(slots, bits, known, vertex)
            slots[slot] = total
            known[total] = vertex
            total += 1
        columns[k] = slots[slot]
    return columns, known[count:total].copy(), slots


@kernel
def _ranks(
    slots: NDArray[np.int32], known: NDArray[np.int64], ordered: NDArray[np.int64], count: int
) -> NDArray[np.int32]:
    """The positions that new vertices have once they are sorted, by their present positions less ``count``."""
    bits = 0
    while (1 << bits) < len(slots):
        bits += 1
    rank = np.empty(len(ordered), np.int32)
    for k in range(len(ordered)):
        rank[slots[find_slot(slots, bits, known, int(ordered[k]))] - count] = count + k
    return rank


@kernel
def _order_rows(
    indptr: NDArray[np.int64],
    columns: NDArray[np.int32],
    entry: NDArray[np.int64],
    count: int,
    rank: NDArray[np.int32],
) -> None:
    """Renumber new columns, and sort every row by column.

    Shell's sort with gaps 1, 4, 13, ... (Knuth, TAOCP 3, section 5.2.1): it sorts short rows by insertion, needs no
    memory for long ones, and compiles in a seventh of the time that NumPy's argsort takes.
    """
    for row in range(len(indptr) - 1):
        start, stop = indptr[row], indptr[row + 1]
        for k in range(start, stop):
            if columns[k] >= count:
                columns[k] = rank[columns[k] - count]
        gap = 1
        while 9 * gap < stop - start:
            gap = 3 * gap + 1
        while gap:
            for k in range(start + gap, stop):
                column, position, place = columns[k], entry[k], k
                while place >= start + gap and columns[place - gap] > column:
                    columns[place], entry[place] = columns[place - gap], entry[place - gap]
                    place -= gap
                columns[place], entry[place] = column, position
            gap //= 3
