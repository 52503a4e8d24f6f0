"""The order that a partition induces: vertices by their part, and within a part by their id."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.matrix.permutation import PARTITION_ORDER


class Order(Protocol):
    """A bijection of the vertices' ids to places."""

    def forward(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """Places of vertices."""
        ...

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class PartOrder:
    """Places looked up in a file of one number per vertex, which is mapped into all tasks of a machine."""

    path: Path

    @classmethod
    def of(cls, partition: Partition, path: Path) -> PartOrder:
        """The order of a partition; writes the file unless it is there, with a chunk of the parts in memory."""
        if not path.exists():
            aside = path.with_name(f".{path.name}")
            aside.parent.mkdir(parents=True, exist_ok=True)
            _write_places(partition, aside)
            aside.replace(path)
        return cls(path)

    def forward(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        places: NDArray[np.int64] = np.load(self.path, mmap_mode="r", allow_pickle=False)[ids]
        return places

    def to_json(self) -> dict[str, Any]:
        return dict(PARTITION_ORDER)


def _write_places(partition: Partition, path: Path) -> None:
    stored = partition.artifact.array("part")
    starts = range(0, len(stored), stored.chunk_rows)
    chunks = [(start, min(start + stored.chunk_rows, len(stored))) for start in starts]
    sizes = np.zeros(partition.num_parts + 1, np.int64)
    for start, stop in chunks:
        sizes[1:] += np.bincount(stored.read(start, stop), minlength=partition.num_parts)
    following = np.cumsum(sizes)
    places = np.lib.format.open_memmap(path, mode="w+", dtype=np.int64, shape=(len(stored),))
    for start, stop in chunks:
        places[start:stop] = _places(stored.read(start, stop), following)
    places.flush()


@njit(cache=True, nogil=True)
def _places(part: NDArray[np.int32], following: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places of the next vertices; ``following`` has the first free place of each part."""
    places = np.empty(len(part), np.int64)
    for row in range(len(part)):
        places[row] = following[part[row]]
        following[part[row]] += 1
    return places
