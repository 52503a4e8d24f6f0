"""Finds the vertices of a stored graph by their ids in the source of its edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.sources.reading.numerals import ZERO
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.format.memory_map import map_copy

_HIGHEST = np.iinfo(np.int64).max


class VertexLookup:
    """Finds vertices by id, in copies of the graph's ids in a folder, which must outlive this object."""

    def __init__(self, graph: Graph, folder: Path) -> None:
        self._num_vertices, self._named = graph.num_vertices, graph.has_names
        names = ("original_name_offset", "original_name") if graph.has_names else ("original_id",)
        self._arrays = [map_copy(graph.artifact.array(name), folder / name) for name in names if name in graph.artifact]

    def find(self, ids: Names) -> NDArray[np.int64]:
        """Look up ids; returns the vertices, (num_ids,) int64, with -1 for ids that no vertex has."""
        found = np.empty(len(ids), np.int64)
        if self._named:
            _find_names(ids.offset, ids.text, self._arrays[0], self._arrays[1], found)
            return found
        _read_numbers(ids.offset, ids.text, found)
        if not self._arrays:
            return np.where(found < self._num_vertices, found, -1)
        (known,) = self._arrays
        # An id above all known ones would be placed after the last; the comparison then refuses it.
        position = np.minimum(np.searchsorted(known, found), max(0, len(known) - 1))
        return np.where((found >= 0) & (known[position] == found), position, -1)


@njit(cache=True, nogil=True)
def _read_numbers(offset: NDArray[np.int64], text: NDArray[np.uint8], numbers: NDArray[np.int64]) -> None:
    """Parse decimal numbers below 2^63; -1 for names that are not numbers."""
    for k in range(numbers.size):
        value: Any = 0
        for at in range(offset[k], offset[k + 1]):
            digit = np.int64(text[at]) - ZERO
            # The division keeps the test for the limit itself from overflowing.
            if not 0 <= digit <= 9 or value > (_HIGHEST - digit) // 10:
                value = -1
                break
            value = value * 10 + digit
        numbers[k] = value


@njit(cache=True, nogil=True)
def _find_names(
    offset: NDArray[np.int64],
    text: NDArray[np.uint8],
    known_offset: NDArray[np.int64],
    known_text: NDArray[np.uint8],
    found: NDArray[np.int64],
) -> None:
    """Search for each name in known names, which ascend; -1 for names that are not among them."""
    # Known names ascend by their bytes, as ``_compare`` orders them, so a binary search finds each name.
    for k in range(found.size):
        low, high, found[k] = 0, known_offset.size - 1, -1
        while low < high:
            middle = (low + high) // 2
            order = _compare(text, offset[k], offset[k + 1], known_text, known_offset[middle], known_offset[middle + 1])
            if order == 0:
                found[k] = middle
                break
            if order < 0:
                high = middle
            else:
                low = middle + 1


@njit(cache=True, nogil=True)
def _compare(
    text: NDArray[np.uint8], start: int, stop: int, other: NDArray[np.uint8], other_start: int, other_stop: int
) -> int:
    """Negative, zero or positive if the first name is less than, equal to or greater than the other."""
    for k in range(min(stop - start, other_stop - other_start)):
        difference = np.int64(text[start + k]) - np.int64(other[other_start + k])
        if difference != 0:
            return int(difference)
    return int((stop - start) - (other_stop - other_start))
