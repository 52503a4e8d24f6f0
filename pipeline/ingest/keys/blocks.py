"""Blocks of keys: ascending distinct keys in a lane, as the arrays of their type one after another."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.external_sort.lanes import Lane, LaneWriter, OpenFiles, OpenLane
from gnnloom.pipeline.external_sort.spill import value_dtype
from gnnloom.pipeline.ingest.keys.key_types import KeyType
from gnnloom.storage.matrix.csr import TIME_BYTES

#: Keys that are searched in memory, once halving has left no more.
_SEARCHED_KEYS = 1 << 10


@dataclass(frozen=True)
class KeyBlock:
    """Place of a block of keys.

    Attributes:
        lane: the lane that it is a part of, relative to the work folder.
        start: byte of the lane at which it begins.
        counts: elements of each array of the type of the keys; the first array has one for each key.
        widths: bytes of an element of each array.
    """

    lane: Lane
    start: int
    counts: tuple[int, ...]
    widths: tuple[int, ...]

    @classmethod
    def write(cls, opened: LaneWriter, lane: Lane, start: int, arrays: Sequence[NDArray[Any]]) -> KeyBlock:
        """Write a block from a byte of a lane on."""
        end = start
        for array in arrays:
            end = opened.write(end, array)
        return cls(lane, start, tuple(map(len, arrays)), tuple(array.itemsize for array in arrays))

    @property
    def num_keys(self) -> int:
        return self.counts[0]

    @property
    def num_bytes(self) -> int:
        return sum(width * count for width, count in zip(self.widths, self.counts, strict=True))

    @property
    def stop(self) -> int:
        """Byte of the lane after the last one."""
        return self.start + self.num_bytes

    def place(self, array: int, element: int) -> int:
        """Byte of the lane at which an element of an array begins."""
        before = sum(width * count for width, count in zip(self.widths[:array], self.counts[:array], strict=True))
        return self.start + before + self.widths[array] * element


class OpenBlock:
    """A block that is open to be read and searched."""

    def __init__(self, block: KeyBlock, keys: KeyType[Any], files: OpenFiles) -> None:
        self.block, self.keys = block, keys
        self._lane: OpenLane = files.lane(block.lane)

    def elements(self, array: int, start: int, stop: int) -> NDArray[Any]:
        """Elements ``start`` to ``stop`` of an array."""
        found = np.empty(stop - start, np.int64 if self.block.widths[array] == 8 else np.uint8)
        self._lane.read(self.block.place(array, start), found)
        return found

    def position(self, bound: Any, low: int, high: int) -> int:
        """Number of keys below ``bound``, which is at least ``low`` and at most ``high``."""
        while high - low > _SEARCHED_KEYS:
            middle = (low + high) // 2
            if self.keys.key(self.keys.read(self.elements, middle, middle + 1), 0) < bound:
                low = middle + 1
            else:
                high = middle
        found = self.keys.read(self.elements, low, high)
        return low + bisect_left(range(high - low), bound, key=lambda number: self.keys.key(found, number))


@dataclass(frozen=True)
class KeyFile:
    """The distinct keys of some consecutive edges, followed by these edges.

    If the ends of edges have keys of their own, the keys of the sources come first, then the keys of the targets,
    and two objects share the edges.

        source    (num_edges,) int32      positions of the edges' ends among the keys
        target    (num_edges,) int32
        value     (num_edges,)            float32 weights, or float64 times, or none
        kind      (num_edges,) int32      the kind of each edge, or none

    Attributes:
        keys: the block of the keys.
        num_edges: number of edges, at least one.
        value_bytes: bytes of the weight or time of an edge; 0 if there are none.
        edges_at: byte of the lane at which the edges begin.
        kind_bytes: bytes of the kind of an edge; 0 if all edges have the same.
    """

    keys: KeyBlock
    num_edges: int
    value_bytes: int
    edges_at: int
    kind_bytes: int = 0

    @property
    def edge_bytes(self) -> int:
        """Bytes of the edges."""
        return (8 + self.value_bytes + self.kind_bytes) * self.num_edges

    @property
    def stop(self) -> int:
        """Byte of the lane after the last one."""
        return self.edges_at + self.edge_bytes

    @property
    def has_times(self) -> bool:
        """Whether the values of edges are their times, rather than their weights."""
        return self.value_bytes == TIME_BYTES

    def to_json(self) -> list[Any]:
        """All but the lane, which the files of a task share."""
        apart = [] if self.edges_at == self.keys.stop and not self.kind_bytes else [self.edges_at]
        kinds = [self.kind_bytes] if self.kind_bytes else []
        return [self.keys.start, list(self.keys.counts), self.num_edges, self.value_bytes, *apart, *kinds]

    @classmethod
    def from_json(cls, content: Sequence[Any], lane: Lane, widths: tuple[int, ...]) -> KeyFile:
        start, counts, num_edges, value_bytes, *apart = content
        keys = KeyBlock(lane, start, tuple(counts), widths)
        return cls(keys, num_edges, value_bytes, apart[0] if apart else keys.stop, apart[1] if len(apart) > 1 else 0)

    def read_ends(self, files: OpenFiles, start: int, stop: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """(num_edges,) int32 positions of the sources and of the targets of edges ``start`` to ``stop``."""
        ends = np.empty((2, stop - start), np.int32)
        for column, row in enumerate(ends):
            files.lane(self.keys.lane).read(self._edge_at(column, start), row)
        return ends[0], ends[1]

    def read_values(self, files: OpenFiles, start: int, stop: int) -> NDArray[Any] | None:
        """(num_edges,) float32 weights or float64 times of edges ``start`` to ``stop``; None if the file has none."""
        if not self.value_bytes:
            return None
        values: NDArray[Any] = np.empty(stop - start, value_dtype(self.value_bytes))
        files.lane(self.keys.lane).read(self._edge_at(2, 0) + self.value_bytes * start, values)
        return values

    def read_kinds(self, files: OpenFiles, start: int, stop: int) -> NDArray[np.int32]:
        """(num_edges,) int32 kinds of edges ``start`` to ``stop``; zeros if all edges have the same."""
        kinds = np.zeros(stop - start, np.int32)
        if self.kind_bytes:
            at = self._edge_at(2, 0) + self.value_bytes * self.num_edges + self.kind_bytes * start
            files.lane(self.keys.lane).read(at, kinds)
        return kinds

    def _edge_at(self, column: int, edge: int) -> int:
        return self.edges_at + 4 * (column * self.num_edges + edge)
