"""Orders of the vertices, and the order of a partition: by part, and within a part by id."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.shuffle.mapped_vectors import map_vector, write_vector
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.permutation import PARTITION_ORDER


class Order(Protocol):
    """A bijection from vertex ids to positions."""

    def forward(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """Return the positions of vertices.

        Args:
            ids: (num_ids,) integers.

        Returns:
            (num_ids,) int64.
        """
        ...

    def to_json(self) -> dict[str, Any]:
        """Describe the order in a manifest."""
        ...


@dataclass(frozen=True)
class PartOrder:
    """Positions looked up in a file with one int64 per vertex, which all tasks of a machine map.

    Attributes:
        path: mapped vector of the (num_vertices,) int64 positions.
    """

    path: Path

    @classmethod
    def of(cls, partition: Partition, path: Path) -> PartOrder:
        """Return the order of a partition, writing its file unless it exists; holds one chunk of parts in memory."""
        if not path.exists():
            write_vector(path, _positions(partition))
        return cls(path)

    def forward(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        positions: NDArray[np.int64] = map_vector(self.path, np.int64)[ids]
        return positions

    def to_json(self) -> dict[str, Any]:
        return dict(PARTITION_ORDER)


def _positions(partition: Partition) -> Iterator[NDArray[np.int64]]:
    """Counting sort in two passes over the stored parts: sizes of the parts first, then positions."""
    stored = partition.stored_part()
    starts = range(0, len(stored), stored.chunk_rows)
    chunks = [(start, min(start + stored.chunk_rows, len(stored))) for start in starts]
    # One more than the parts, so that the running sum of the sizes starts at 0.
    sizes = np.zeros(partition.num_parts + 1, np.int64)
    for start, stop in chunks:
        sizes[1:] += np.bincount(stored.read(start, stop), minlength=partition.num_parts)
    next_position = np.cumsum(sizes)
    for start, stop in chunks:
        yield _assign_positions(stored.read(start, stop), next_position)


@kernel
def _assign_positions(part: NDArray[np.int32], next_position: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of the next vertices and advance ``next_position``, the first free one of each part."""
    positions = np.empty(len(part), np.int64)
    # Ascending ids take ascending positions of their part, so the order within a part is the order of the ids.
    for row in range(len(part)):
        positions[row] = next_position[part[row]]
        next_position[part[row]] += 1
    return positions
