"""The vertices of each part of a partition, for random access."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.disk.value_rules import Ascending, Within
from gnnloom.storage.format.mapped_copy import ArrayContent, open_copy
from gnnloom.storage.matrix.csr import index_dtype


@dataclass(frozen=True)
class PartMembers:
    """The vertices of each part.

    Attributes:
        offset: (num_parts + 1,) int64 where each part begins in ``vertex``.
        vertex: (num_vertices,) int32 or int64, sorted by part, and within a part.
        part: (num_vertices,) int32 part of each vertex.
    """

    offset: NDArray[np.int64]
    vertex: NDArray[Any]
    part: NDArray[np.int32]

    @property
    def num_parts(self) -> int:
        return len(self.offset) - 1

    def of(self, part: int) -> NDArray[Any]:
        """The vertices of one part, ascending."""
        return self.vertex[self.offset[part] : self.offset[part + 1]]


def part_members(part: NDArray[np.int32], num_parts: int) -> PartMembers:
    """Sort vertices by their parts.

    Args:
        part: (num_vertices,) int32 part of each vertex.
    """
    return PartMembers(_part_offsets(part, num_parts), _sorted_by_part(part), part)


def map_part_members(partition: Partition) -> PartMembers:
    """Map the vertices of each part from files that all processes share; see :mod:`..format.mapped_copy`."""
    arrays = open_copy(partition.artifact, partition_contents(partition))
    return PartMembers(arrays["offset"], arrays["vertex"], arrays["part"])


def partition_contents(partition: Partition) -> dict[str, ArrayContent]:
    """The arrays of :class:`PartMembers`."""

    def offset() -> Iterator[NDArray[np.int64]]:
        yield _part_offsets(partition.part(), partition.num_parts)

    def vertex() -> Iterator[NDArray[Any]]:
        yield _sorted_by_part(partition.part())

    n = partition.num_vertices
    return {
        "offset": ArrayContent((partition.num_parts + 1,), np.dtype(np.int64), Ascending(n), offset),
        "vertex": ArrayContent((n,), index_dtype(n), Within(0, n), vertex),
        "part": ArrayContent.of(partition.stored_part()),
    }


def _part_offsets(part: NDArray[np.int32], num_parts: int) -> NDArray[np.int64]:
    offset = np.zeros(num_parts + 1, np.int64)
    np.cumsum(np.bincount(part, minlength=num_parts), out=offset[1:])
    return offset


def _sorted_by_part(part: NDArray[np.int32]) -> NDArray[Any]:
    # Stable, so that the vertices of a part ascend.
    return np.argsort(part, kind="stable").astype(index_dtype(len(part)))
