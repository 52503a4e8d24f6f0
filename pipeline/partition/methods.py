"""From a graph and options to parts: which method reads what."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.adjacency_graph import AdjacencyGraph, adjacency_graph
from gnnloom.pipeline.partition.balance import fill_empty_parts
from gnnloom.pipeline.partition.hypergraph import Hypergraph, column_net_hypergraph, row_nonzeros
from gnnloom.pipeline.partition.multilevel.out_of_core import partition_out_of_core
from gnnloom.pipeline.partition.problem import PartitionProblem
from gnnloom.pipeline.partition.stochastic.batch_partition import partition_for_batches
from gnnloom.pipeline.partition.streaming import block_partition, random_partition
from gnnloom.storage.artifacts.graph import Graph


def fill_part(problem: PartitionProblem, part: NDArray[np.int32]) -> dict[str, Any]:
    """Fill ``part``, (num_vertices,) int32, which the file ``problem.part_path`` backs.

    Returns:
        Facts of the partition beside what is counted on every one; JSON.
    """
    options = problem.options
    if options.method == "block":
        block_partition(part, problem.graph, options.parts, options.weights)
        return {}
    if options.method == "random":
        random_partition(part, options.parts, options.seed)
        _fill_empty(part, problem.graph, options.parts)
        return {}
    if options.parts in {1, len(part)}:
        part[:] = np.arange(len(part)) if options.parts > 1 else 0
        return {}
    if options.method == "multilevel":
        return partition_out_of_core(problem, part)
    if options.model == "stochastic":
        return partition_for_batches(problem, part)
    part[:] = problem.native(_native_problem(problem))
    return {}


def _native_problem(problem: PartitionProblem) -> Hypergraph | AdjacencyGraph:
    graph, transpose, options = problem.graph, problem.transpose, problem.options
    if options.model == "graph":
        problem.check_memory(graph.nnz * (1 if graph.symmetric else 2))
        return adjacency_graph(graph, transpose, options.weights)
    problem.check_memory(problem.num_pins)
    return column_net_hypergraph(graph, transpose, options.weights, options.directions)


def _fill_empty(part: NDArray[np.int32], graph: Graph, parts: int) -> None:
    """Fill empty parts; the weights are read only when there are some, which happens to small graphs."""
    if np.bincount(part, minlength=parts).all():
        return
    fill_empty_parts(part, np.concatenate([nonzeros for _, nonzeros in row_nonzeros(graph)]), parts)
