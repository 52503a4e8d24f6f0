"""A stored partition: the part of every vertex, and the measured quality."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.format.arrays import ArrayReader
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.wording import counted


class Partition:
    """The part (0..num_parts-1) of every vertex.

    ``quality`` holds the figures that the exact counter found on the stored graph: ``km1``, ``imbalance``,
    ``volume_avg``, ``volume_max``, ``messages_avg``, ``messages_max``, lists such as ``volume_per_part``, and more.
    """

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.num_vertices: int = artifact.sizes["vertex"]
        self.num_parts: int = artifact.parameters["parts"]
        self.method: str = artifact.parameters["method"]
        self.quality: dict[str, Any] = artifact.facts["quality"]

    def __repr__(self) -> str:
        return f"Partition({counted(self.num_parts, 'part')} of {counted(self.num_vertices, 'vertex')}, {self.method})"

    def part(self, start: int = 0, stop: int | None = None) -> NDArray[np.int32]:
        """(stop - start,) int32 parts of the vertices."""
        return self.stored_part().read(start, stop)

    def stored_part(self) -> ArrayReader:
        """Open the (num_vertices,) int32 parts; reading one that is not in 0..num_parts-1 is an error."""
        return self.artifact.array("part", bounds=(0, self.num_parts))

    def exchange(self, *, backward: bool = False) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
        """Number of rows that each part sends to each other part for one product, as counted exactly.

        Args:
            backward: count the product with the transpose; for undirected graphs it is the same.

        Returns:
            (num_pairs,) int32 senders and (num_pairs,) int32 receivers, sorted by both, and (num_pairs,) int64 numbers
            of rows, at least 1.

        Raises:
            NotFoundError: the partition was not measured, or it has many parts and was made before their exchange was
                stored.
        """
        direction = "backward" if backward and "volume_backward_total" in self.quality else "forward"
        name = "volume_matrix" if direction == "forward" else "volume_backward_matrix"
        # The matrix grows with the square of the parts, so only partitions with few parts keep it in the manifest.
        if name not in self.quality:
            limits = {"sender": self.num_parts, "receiver": self.num_parts, "rows": self.num_vertices + 1}
            sender, receiver, rows = (
                self.artifact.array(f"exchange/{direction}/{name}", bounds=(0, stop)).read()
                for name, stop in limits.items()
            )
            return sender, receiver, rows
        matrix = np.asarray(self.quality[name], dtype=np.int64)
        sender, receiver = np.nonzero(matrix)
        return sender.astype(np.int32), receiver.astype(np.int32), matrix[sender, receiver]
