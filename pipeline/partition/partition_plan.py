"""What the tasks of the partition stage do, counted from the plans that they run with."""

from __future__ import annotations

from pathlib import Path

from gnnloom.pipeline.partition.measure.measurement import MeasurePlan
from gnnloom.pipeline.partition.multilevel.pieces import Setting
from gnnloom.pipeline.partition.multilevel.plan import boundary_phases, method_phases
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.stage import store_phase
from gnnloom.pipeline.partition.stochastic.batch_partition import expected_phases
from gnnloom.pipeline.tasks.phase import Phase, PhaseCount, count
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.format.artifact import ArtifactWriter


def partition_counts(
    graph: GraphSizes, transpose: GraphSizes, options: PartitionOptions | None, workers: int, memory: int
) -> list[PhaseCount]:
    """Count what the tasks do that make, store and measure a partition, without running them.

    Args:
        transpose: sizes of the transpose; those of the graph if it is undirected.
        options: of the partition; None for a single part, which no task makes.
        workers: tasks at a time.
        memory: bytes that a worker may use.

    Raises:
        BudgetError: the memory leaves no room for buffers.
    """
    parts = options.parts if options else 1
    store = store_phase(graph.num_vertices, parts, "", ArtifactWriter(Path(), "partition", ""), Path())
    measured = count([store, *MeasurePlan(graph, transpose, parts, memory).phases()])
    # One part, or a part for each vertex, leaves no choice.
    if options is None or parts in {1, graph.num_vertices}:
        return measured
    if options.model == "stochastic":
        return [*count(expected_phases(graph, transpose, options)), *measured]
    return [*count(_multilevel_phases(graph, options, Setting(parts, workers, memory))), *measured]


def _multilevel_phases(graph: GraphSizes, options: PartitionOptions, setting: Setting) -> list[Phase]:
    """The phases of the multilevel method; none if another one runs."""
    directions = 2 if options.directions == "both" and not graph.symmetric else 1
    method, preset = options.method, options.preset
    blocks = graph.block_rows, graph.block_nnz
    rounds = method_phases(*blocks, setting, method, preset, symmetric=graph.symmetric, directions=directions)
    return [*rounds, *boundary_phases(graph.num_vertices, graph.nnz, directions, setting, method, preset)]
