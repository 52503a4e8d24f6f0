"""The numbers of all vertices: by part, and within each part by id or by degree.

A *slot* counts the vertices of all parts, one part after the other. From the slot of a vertex follow its part and its
local number, so that a task that renumbers columns looks up one number for each, whatever the size of its rank. The
vertices of a rank are cut into ranges of about equal size in the order of their local numbers; a task holds one range.

By degree, the rows that are read most often are stored together, and so fit into a cache. Hubs come first; equal
degrees keep the order of their ids, which keeps any locality that the ids have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.shuffle.mapped_vectors import map_vector, write_vector
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.arrays import ArrayReader
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.csr import index_dtype
from gnnloom.storage.matrix.ranges import Span

#: Bits of a degree in a key of a part and a degree.
_DEGREE_BITS: Final = 40
#: Keys that may wait before they are merged.
_PENDING_KEYS: Final = 1 << 20


@dataclass(frozen=True)
class RangeSizes:
    """The ranges that the vertices of each rank are cut into.

    Attributes:
        num_ranges: for each rank; at least 1.
        sizes: for each rank, what its ranges share about equally.
        vertex_size, nonzero_size: sizes of a vertex, and of each nonzero of its row.
    """

    num_ranges: tuple[int, ...]
    sizes: tuple[int, ...]
    vertex_size: int
    nonzero_size: int

    @cached_property
    def first_positions(self) -> list[int]:
        """The position of each rank's first range among all ranges, and how many ranges there are."""
        return [0, *np.cumsum(self.num_ranges, dtype=np.int64).tolist()]

    @property
    def num_positions(self) -> int:
        return self.first_positions[-1]

    def positions(self, rank: int) -> range:
        """The positions of the ranges of a rank."""
        return range(*self.first_positions[rank : rank + 2])

    @property
    def are_cut(self) -> bool:
        """Whether a rank has several ranges."""
        return self.num_positions > len(self.num_ranges)

    def steps(self) -> NDArray[np.int64]:
        """(P,) int64 what a range of each rank has at most, but for its last vertex."""
        return np.array(
            [-(-size // count) for size, count in zip(self.sizes, self.num_ranges, strict=True)], dtype=np.int64
        )


@dataclass(frozen=True)
class VertexNumbers:
    """The files with the numbers of all vertices, which tasks map.

    Attributes:
        folder: folder of the files.
        num_vertices: of the graph.
        is_reordered: whether local numbers follow the degree, and not the id.
    """

    folder: Path
    num_vertices: int
    is_reordered: bool

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a slot."""
        return index_dtype(self.num_vertices)

    @property
    def by_number(self) -> NDArray[Any]:
        """(num_vertices,) slots of the vertices, by part and then by local number."""
        return map_vector(self._by_number, self.dtype)

    @property
    def by_id(self) -> NDArray[Any]:
        """(num_vertices,) slots of the vertices, by part and then by id: the order of halos."""
        return map_vector(self._by_id, self.dtype)

    @property
    def bounds(self) -> NDArray[np.int64]:
        """(num_positions + 1,) int64 slot by local number at which each range begins, and the number of vertices."""
        return map_vector(self._bounds, np.int64)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """(num_parts + 1,) int64 slot at which each part begins, and the number of vertices."""
        return map_vector(self._offsets, np.int64)

    @property
    def _by_number(self) -> Path:
        return self.folder / "by-number" if self.is_reordered else self._by_id

    @property
    def _by_id(self) -> Path:
        return self.folder / "by-id"

    @property
    def _bounds(self) -> Path:
        return self.folder / "bounds"

    @property
    def _offsets(self) -> Path:
        return self.folder / "offsets"

    def find_positions(self, slot: NDArray[Any]) -> NDArray[np.int64]:
        """(num_slots,) int64 positions of the ranges that have these slots."""
        return np.searchsorted(self.bounds, slot, side="right") - 1

    def write(self, partition: Partition, degrees: ArrayReader, ranges: RangeSizes) -> None:
        """Write the files, unless all files exist; a few chunks are in memory at once.

        Args:
            degrees: (num_vertices,) int64 nonzeros of the row of each vertex, in all matrices.
            ranges: ranges of each rank.

        Raises:
            CorruptError: the parts differ from the counted parts.
        """
        files = (self._offsets, self._bounds, self._by_id, self._by_number)
        if all(file.exists() for file in files):
            return
        offsets = np.zeros(partition.num_parts + 1, np.int64)
        np.cumsum(partition.quality["vertices_per_part"], out=offsets[1:])
        parts = partition.stored_part()
        cut = _Cut(ranges, offsets)
        # Degrees decide where the ranges of a rank begin, if it has several.
        used = degrees if ranges.are_cut and not self.is_reordered else None
        write_vector(self._by_id, _by_id(parts, used, offsets, cut, self.dtype))
        if self.is_reordered:
            write_vector(self._by_number, _by_degree(parts, degrees, offsets, cut, self.dtype))
        write_vector(self._bounds, [cut.bounds])
        write_vector(self._offsets, [offsets])


class _Cut:
    """Finds where ranges begin.

    Attributes:
        bounds: (num_positions + 1,) int64 slot at which each range begins, and the number of vertices.
    """

    def __init__(self, ranges: RangeSizes, offsets: NDArray[np.int64]) -> None:
        self._ranges, self._offsets = ranges, offsets
        self._first, self._steps = np.array(ranges.first_positions), ranges.steps()
        # A range that no vertex begins is empty, and lies at the end of its rank.
        self.bounds = np.repeat(np.append(offsets[1:], offsets[-1]), [*ranges.num_ranges, 1])
        self.bounds[self._first[:-1]] = offsets[:-1]
        self._begun = np.ones(len(offsets) - 1, np.int64)
        self._before = np.zeros(len(offsets) - 1, np.int64)

    def add(self, part: NDArray[np.int32], degree: NDArray[np.int64], slot: NDArray[Any]) -> None:
        """Add the next vertices in the order of their slots within each part."""
        size = self._ranges.vertex_size + self._ranges.nonzero_size * degree
        begin_ranges(part, size, slot, self._steps, self._first, self._begun, self._before, self.bounds)

    def add_groups(self, part: int, degree: NDArray[np.int64], count: NDArray[np.int64]) -> None:
        """Add all vertices of a part.

        Args:
            degree, count: (num_groups,) int64 degree of the vertices that follow each other, and their number.
        """
        size = self._ranges.vertex_size + self._ranges.nonzero_size * degree
        ends, first = np.cumsum(size * count), int(self._first[part])
        row_end = np.cumsum(count)
        for number in range(1, self._ranges.num_ranges[part]):
            target = number * int(self._steps[part])
            group = int(np.searchsorted(ends, target, side="left"))
            if group < len(ends):
                # Vertices of the group from the target on.
                left = (int(ends[group]) - target) // int(size[group])
                self.bounds[first + number] = self._offsets[part] + row_end[group] - left


@kernel
def begin_ranges(
    part: NDArray[np.int32],
    size: NDArray[np.int64],
    slot: NDArray[Any],
    steps: NDArray[np.int64],
    first: NDArray[np.int64],
    begun: NDArray[np.int64],
    before: NDArray[np.int64],
    bounds: NDArray[np.int64],
) -> None:
    """Enter into ``bounds`` the slots at which ranges begin among the next vertices.

    Args:
        part, size, slot: (num_vertices,) rank, bytes and slot of each vertex.
        steps: (num_parts,) int64 bytes of a range of each rank.
        first: (num_parts + 1,) int64 number of each rank's first range.
        begun, before: (num_parts,) int64 ranges of each rank that have begun, and bytes of its vertices so far.
        bounds: (num_ranges + 1,) int64 slot at which each range begins.
    """
    for k in range(len(part)):
        owner = part[k]
        while begun[owner] < first[owner + 1] - first[owner] and before[owner] >= begun[owner] * steps[owner]:
            bounds[first[owner] + begun[owner]] = slot[k]
            begun[owner] += 1
        before[owner] += size[k]


def _spans(stored: ArrayReader) -> Iterator[Span]:
    for start in range(0, len(stored), stored.chunk_rows):
        yield start, min(start + stored.chunk_rows, len(stored))


def _by_id(
    parts: ArrayReader, degrees: ArrayReader | None, offsets: NDArray[np.int64], cut: _Cut, dtype: np.dtype[Any]
) -> Iterator[NDArray[Any]]:
    """The slots by id, chunk by chunk.

    Args:
        degrees: of the vertices, if their ranges are cut by id.
    """
    following = offsets[:-1].copy()
    for start, stop in _spans(parts):
        part = parts.read(start, stop)
        slot = np.empty(len(part), dtype)
        _number(part, following, slot)
        if degrees is not None:
            cut.add(part, degrees.read(start, stop), slot)
        yield slot
    _check_counted(parts, following, offsets)


def _by_degree(
    parts: ArrayReader, degrees: ArrayReader, offsets: NDArray[np.int64], cut: _Cut, dtype: np.dtype[Any]
) -> Iterator[NDArray[Any]]:
    """The slots by degree, largest first, chunk by chunk: a counting sort."""
    keys, counts = _count_keys(_degree_keys(parts, degrees))
    ends = np.cumsum(counts)
    for part, (first, last) in enumerate(_groups(keys, len(offsets) - 1)):
        if (ends[last - 1] if last else 0) != offsets[part + 1]:
            raise _wrong_counts(parts)
        cut.add_groups(part, _degree_of(keys[first:last]), counts[first:last])
    following = ends - counts
    for key in _degree_keys(parts, degrees):
        slot = np.empty(len(key), dtype)
        _number(np.searchsorted(keys, key), following, slot)
        yield slot


def _degree_keys(parts: ArrayReader, degrees: ArrayReader) -> Iterator[NDArray[np.int64]]:
    """Keys of vertices, chunk by chunk, that ascend with the part, and then with descending degree."""
    for start, stop in _spans(parts):
        part = parts.read(start, stop).astype(np.int64)
        yield (part << _DEGREE_BITS) + ((1 << _DEGREE_BITS) - 1 - degrees.read(start, stop))


def _degree_of(key: NDArray[np.int64]) -> NDArray[np.int64]:
    return (1 << _DEGREE_BITS) - 1 - (key & ((1 << _DEGREE_BITS) - 1))


def _groups(keys: NDArray[np.int64], num_parts: int) -> Iterator[Span]:
    """First and last (exclusive) key of each part."""
    bounds = np.searchsorted(keys, np.arange(num_parts + 1, dtype=np.int64) << _DEGREE_BITS).tolist()
    yield from pairwise(bounds)


def _count_keys(found: Iterator[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct keys, ascending, and how often each was found.

    A part has few degrees: their sum is its number of nonzeros.
    """
    empty = np.empty(0, np.int64)
    keys, counts = empty, empty
    waiting: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    for key in found:
        waiting.append(np.unique(key, return_counts=True))
        # Merging only when the waiting keys are as numerous as the merged keys sorts each key a few times at most.
        if sum(len(each) for each, _ in waiting) > max(_PENDING_KEYS, len(keys)):
            keys, counts = _merge_counts([(keys, counts), *waiting])
            waiting = []
    return _merge_counts([(keys, counts), *waiting])


def _merge_counts(
    found: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    keys, place = np.unique(np.concatenate([key for key, _ in found]), return_inverse=True)
    total = np.zeros(len(keys), np.int64)
    np.add.at(total, place, np.concatenate([count for _, count in found]))
    return keys, total


@kernel
def _number(group: NDArray[Any], following: NDArray[np.int64], slot: NDArray[Any]) -> None:
    """Give each vertex the next slot of its group; ``following`` is updated."""
    for k in range(len(group)):
        slot[k] = following[group[k]]
        following[group[k]] += 1


def _check_counted(parts: ArrayReader, following: NDArray[np.int64], offsets: NDArray[np.int64]) -> None:
    if not np.array_equal(following, offsets[1:]):
        raise _wrong_counts(parts)


def _wrong_counts(parts: ArrayReader) -> CorruptError:
    return CorruptError(
        f"{parts.where}: the parts have other numbers of vertices than the manifest says; remove the partition and make"
        " it again"
    )
