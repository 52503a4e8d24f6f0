"""The best parts that a refinement has passed through, kept in a file."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.multilevel.cut import rows_sent
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.vectors import map_vector
from gnnloom.pipeline.tasks.cluster import Cluster


class BestParts:
    """Keeps the parts with the least weight above the limit and, among those, with the least cut."""

    def __init__(self, hypergraph: DiskHypergraph, part_path: Path, limit: int, kept_path: Path) -> None:
        """Keep nothing yet.

        Args:
            part_path: file of the (num_vertices,) int32 parts that are refined.
            limit: weight up to which a part is not too heavy.
            kept_path: file for the best parts.
        """
        self._hypergraph, self._part_path, self._limit, self._kept_path = hypergraph, part_path, limit, kept_path
        self._best: tuple[int, int] | None = None
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
            shutil.copyfile(self._part_path, self._kept_path)

    def restore(self, part: NDArray[np.int32]) -> None:
        """Set the parts to the best ones, and remove their file.

        Args:
            part: (num_vertices,) int32, mapped from the file of the parts; unchanged since the last offer.
        """
        if not self._is_current:
            np.copyto(part, map_vector(self._kept_path))
        self._kept_path.unlink()
