"""Builds the input of a native program: the hypergraph, the graph, or the nets of mini-batches."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.measure.balance import fill_only_choice
from gnnloom.pipeline.partition.model.adjacency_graph import AdjacencyGraph, adjacency_graph
from gnnloom.pipeline.partition.model.hypergraph import Hypergraph, column_net_hypergraph
from gnnloom.pipeline.partition.native.program import NativeProgram
from gnnloom.pipeline.partition.native.run import NativeProblem
from gnnloom.pipeline.partition.partitioner import START_SECONDS, MethodCost, PartitionWorkload, Preset
from gnnloom.pipeline.partition.stochastic.annealing import annealing_memory
from gnnloom.pipeline.partition.stochastic.batch_partition import partition_for_batches
from gnnloom.pipeline.partition.stochastic.drawn_batches import MOST_PINS
from gnnloom.pipeline.tasks.memory import BASE_MEMORY

#: Annealing parts for uniform batches: seconds and power of the parts, as of a preset.
_ANNEALING = Preset(seconds=100.0, parts_power=0.3)
#: Bytes of text for each pin in the file that a program reads.
_TEXT_BYTES_PER_PIN = 7
#: Bytes of files for each pin of drawn batches while their nets are merged, as measured; no text is there meanwhile.
_DRAWN_BYTES_PER_PIN = 17


def fill_natively(problem: NativeProblem, part: NDArray[np.int32]) -> dict[str, Any]:
    """Fill ``part``, (num_vertices,) int32, by the problem's program; returns facts about the partition.

    Raises:
        BudgetError: the program would need more memory than there is.
        PartitionerError: the program failed or took too long.
    """
    options = problem.options
    if fill_only_choice(part, options.parts):
        return {}
    if options.model == "stochastic":
        return partition_for_batches(problem, part)
    part[:] = problem.native(_build(problem))
    return {}


def _build(problem: NativeProblem) -> Hypergraph | AdjacencyGraph:
    """The hypergraph or the graph in memory; refused before it is built if it would not fit."""
    graph, transpose, options = problem.graph, problem.transpose, problem.options
    if options.model == "graph":
        problem.check_memory(graph.nnz * (1 if graph.symmetric else 2))
        return adjacency_graph(graph, transpose, options.weighing)
    problem.check_memory(problem.num_pins)
    return column_net_hypergraph(graph, transpose, options.weighing, options.directions)


def native_cost(program: NativeProgram, workload: PartitionWorkload, preset: Preset) -> MethodCost:
    """Resources that a preset of a program takes for a workload."""
    size = _largest_size(workload)
    # The parent holds the arrays while the child works; ids take 4 bytes, since native programs count in 32 bits.
    arrays = 4 * workload.num_pins + 16 * workload.num_vertices
    memory = BASE_MEMORY + arrays + _peak(program, workload, preset, size)
    is_drawn = workload.model == "stochastic" and workload.batches != "vertex"
    disk = (_DRAWN_BYTES_PER_PIN if is_drawn else _TEXT_BYTES_PER_PIN) * size
    return MethodCost(memory, disk, _cpu_seconds(workload, preset, size))


def _largest_size(workload: PartitionWorkload) -> int:
    """Pins or entries of the largest problem that the program gets; batches may have fewer."""
    if workload.model == "graph":
        return workload.num_entries
    if workload.model != "stochastic":
        return workload.num_pins
    if workload.batches != "vertex":
        # Drawing stops once the nets of all batches hold this many times the pins.
        return MOST_PINS * workload.num_pins
    # A 2-pin net for every pair of vertices that a net joins with its owner.
    return workload.num_pins + workload.num_entries


def _peak(program: NativeProgram, workload: PartitionWorkload, preset: Preset, size: int) -> int:
    num_vertices, parts = workload.num_vertices, workload.parts
    peak = program.memory(preset.name, size, num_vertices, parts)
    if workload.model != "stochastic":
        return peak
    num_nets = workload.num_directions * num_vertices
    # Nets of two pins add an offset and a weight, 12 bytes per pin.
    # The program has ended when annealing begins, so the larger of the two counts, and not their sum.
    return max(peak + 12 * size, annealing_memory(num_vertices, num_nets, workload.num_pins, parts))


def _cpu_seconds(workload: PartitionWorkload, preset: Preset, size: int) -> float:
    seconds = START_SECONDS + preset.cpu_seconds(size, workload.parts)
    if workload.model == "stochastic":
        # The full-batch hypergraph is partitioned as well, for comparison.
        seconds += preset.cpu_seconds(workload.num_pins, workload.parts)
        if workload.batches == "vertex":
            seconds += _ANNEALING.cpu_seconds(workload.num_pins, workload.parts)
    return seconds
