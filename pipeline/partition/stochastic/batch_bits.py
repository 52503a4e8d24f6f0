"""Drawn batches in a file: one bit for each vertex, which tasks map and look up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numba import njit
from numpy.typing import NDArray


@dataclass(frozen=True)
class DrawnBatches:
    """Batches in a plain file; small and picklable, so that tasks can hold it.

    Attributes:
        path: file of (num_batches, num_bytes) uint8; bit v % 8 of byte v // 8 of a row says whether vertex v is drawn.
    """

    path: Path
    num_batches: int
    num_vertices: int

    def create(self) -> None:
        """Create the file, with all batches empty."""
        with self.path.open("wb") as file:
            file.truncate(self.num_batches * batch_bytes(self.num_vertices))

    def bits(self) -> NDArray[np.uint8]:
        """Map the (num_batches, num_bytes) bits; pages are read on access."""
        shape = self.num_batches, batch_bytes(self.num_vertices)
        return np.asarray(np.memmap(self.path, np.uint8, "r", shape=shape))

    def write(self, row: int, vertices: NDArray[np.int64]) -> None:
        """Store the vertices of one batch.

        Args:
            row: of the file; every row has one writer.
            vertices: (num_drawn,) int64.
        """
        drawn = np.zeros(self.num_vertices, dtype=np.bool_)
        drawn[vertices] = True
        # Not through a map: workers on several machines would write back whole pages, with the rows of others.
        with self.path.open("r+b") as file:
            file.seek(row * batch_bytes(self.num_vertices))
            file.write(np.packbits(drawn, bitorder="little").data)


def batch_bytes(num_vertices: int) -> int:
    """Return the bytes of a batch."""
    return -(-num_vertices // 8)


@njit(cache=True, nogil=True, inline="always")
def is_drawn(bits: NDArray[np.uint8], vertex: int) -> bool:
    """Return whether a vertex is in the batch with these (num_bytes,) bits."""
    return bool((bits[vertex >> 3] >> (vertex & 7)) & 1)
