"""A stored partition: the part of every vertex, with its measured quality."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifact import Artifact


class Partition:
    """The part (0..num_parts-1) of every vertex.

    ``quality`` holds what the exact counter found on the stored graph: ``km1``, ``imbalance``,
    ``volume_avg``, ``volume_max``, ``messages_avg``, ``messages_max`` and more.
    """

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.num_vertices: int = artifact.sizes["vertex"]
        self.num_parts: int = artifact.parameters["parts"]
        self.method: str = artifact.parameters["method"]
        self.quality: dict[str, Any] = artifact.facts["quality"]

    def __repr__(self) -> str:
        return f"Partition({self.num_parts} parts of {self.num_vertices:,} vertices, {self.method})"

    def part(self, start: int = 0, stop: int | None = None) -> NDArray[np.int32]:
        """(stop - start,) int32, the parts of these vertices."""
        return self.artifact.array("part").read(start, stop)
