"""A partitioning problem together with the native program that works on it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.adjacency_graph import AdjacencyGraph
from gnnloom.pipeline.partition.model.hypergraph import Hypergraph, net_matrices
from gnnloom.pipeline.partition.native.guard import OTHER_METHODS, check_native_memory
from gnnloom.pipeline.partition.native.program import NativeProgram
from gnnloom.pipeline.partition.native.request import PartitionRequest
from gnnloom.pipeline.partition.native.run import native_partition
from gnnloom.pipeline.partition.problem import PartitionProblem

_OTHER_MODEL = "use model hypergraph with method multilevel, or more memory"


@dataclass(frozen=True)
class NativeProblem(PartitionProblem):
    """A problem for a native program.

    Attributes:
        program: partitions the hypergraphs and graphs that are made of the problem.
    """

    program: NativeProgram

    @classmethod
    def of(cls, problem: PartitionProblem, program: NativeProgram) -> Self:
        """The same problem for a program."""
        return cls(**{field.name: getattr(problem, field.name) for field in fields(problem)}, program=program)

    @property
    def num_pins(self) -> int:
        """Pins of the hypergraph; an upper bound, because rows may already hold their own vertex."""
        matrices = net_matrices(self.graph, self.transpose, self.options.directions)
        return sum(matrix.nnz + matrix.num_vertices for matrix in matrices)

    def native(
        self, hypergraph: Hypergraph | AdjacencyGraph, given: NDArray[np.int32] | None = None
    ) -> NDArray[np.int32]:
        """(num_vertices,) int32 parts of a hypergraph or a graph, by the program with the preset of the options.

        Args:
            given: parts to improve; returned unchanged if the preset cannot improve any.
        """
        options = self.options
        if given is not None and not self.program.preset(options.preset).improves:
            return given
        request = replace(PartitionRequest.of(options), improve=int(given is not None))
        return native_partition(hypergraph, self.program, request, self.scratch, options.time_limit, given)

    def check_memory(self, size: int) -> None:
        """Raise BudgetError if the program would not fit in memory with ``size`` pins or entries."""
        options, n = self.options, self.graph.num_vertices
        # Only native programs offer the stochastic model.
        way_out = _OTHER_MODEL if options.model == "stochastic" else OTHER_METHODS
        check_native_memory(self.program, options.preset, size, n, options.parts, options.memory_limit, way_out)
