"""What the partition stage hands to a method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.adjacency_graph import AdjacencyGraph
from gnnloom.pipeline.partition.hypergraph import Hypergraph, net_matrices
from gnnloom.pipeline.partition.native.budget import check_native_memory
from gnnloom.pipeline.partition.native.run import native_partition
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.presets import METHODS
from gnnloom.pipeline.tasks.cluster import Cluster
from gnnloom.storage.artifacts.graph import Graph


@dataclass(frozen=True)
class PartitionProblem:
    """What is partitioned, how, and where.

    Attributes:
        transpose: of ``graph``; ``graph`` itself if symmetric.
        scratch: folder for files that go away with the work folder.
        part_path: ``.npy`` file that backs the part vector, for tasks to map.
    """

    graph: Graph
    transpose: Graph
    options: PartitionOptions
    scratch: Path
    part_path: Path
    cluster: Cluster

    @property
    def num_pins(self) -> int:
        """Of the hypergraph that is cut; an upper bound, as rows may hold their own vertex."""
        matrices = net_matrices(self.graph, self.transpose, self.options.directions)
        return sum(matrix.nnz + matrix.num_vertices for matrix in matrices)

    def native(
        self, hypergraph: Hypergraph | AdjacencyGraph, given: NDArray[np.int32] | None = None
    ) -> NDArray[np.int32]:
        """(num_vertices,) int32 parts by the native partitioner that the options name.

        Args:
            given: parts to improve, where the preset can; they are returned where it cannot.
        """
        options = self.options
        if given is not None and options.preset not in METHODS[options.method].improving:
            return given
        request = replace(options.request(), improve=int(given is not None))
        return native_partition(hypergraph, options.method, request, self.scratch, options.time_limit, given)

    def check_memory(self, size: int) -> None:
        """Raise BudgetError where a native partitioner of ``size`` pins or entries would not fit."""
        options = self.options
        check_native_memory(
            options.method, options.preset, size, self.graph.num_vertices, options.parts, options.memory_limit
        )
