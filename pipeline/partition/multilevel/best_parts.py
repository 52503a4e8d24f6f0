"""The best parts that a refinement has passed through, kept in a file."""

from __future__ import annotations

import uuid
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.multilevel.copy_vector import copy_vector
from gnnloom.pipeline.partition.multilevel.cut import rows_sent
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.format.memory_map import create_part_vector


class BestParts:
    """Keeps the parts with the least weight above the limit and, among those, with the least cut."""

    def __init__(self, hypergraph: DiskHypergraph, part_path: Path, limit: int, folder: Path) -> None:
        """Keep nothing yet.

        Args:
            part_path: file of the (num_vertices,) int32 parts that are refined.
            limit: weight up to which a part is not too heavy.
            folder: for the best parts.
        """
        self._hypergraph, self._part_path, self._limit, self._folder = hypergraph, part_path, limit, folder
        self._best: tuple[int, int] | None = None
        self._kept_path: Path | None = None
        self._is_current = False

    def offer(self, load: NDArray[np.int64], cluster: Cluster) -> None:
        """Measure the parts as they are, and keep them if they are the best so far.

        Args:
            load: (num_parts,) int64 weight of each part.
        """
        cut = rows_sent(self._hypergraph, self._part_path, len(load), cluster)
        found = max(0, int(load.max()) - self._limit), cut
        self._is_current = self._best is None or found < self._best
        if self._is_current:
            self._best = found
            # A new file each time: a task that was taken for dead but still runs cannot change what is kept later.
            path = self._folder / f"best-{uuid.uuid4().hex}.npy"
            create_part_vector(path, self._hypergraph.num_vertices)
            copy_vector(self._part_path, path, self._hypergraph.num_vertices, cluster)
            self._remove()
            self._kept_path = path

    def restore(self, cluster: Cluster) -> None:
        """Set the parts, unchanged since the last offer, to the best ones, and remove their file."""
        if self._kept_path is not None and not self._is_current:
            copy_vector(self._kept_path, self._part_path, self._hypergraph.num_vertices, cluster)
        self._remove()

    def _remove(self) -> None:
        if self._kept_path is not None:
            self._kept_path.unlink()
            self._kept_path = None
