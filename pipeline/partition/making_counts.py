"""What the tasks that make a partition will do, for the methods and models that have some."""

from __future__ import annotations

from collections.abc import Sequence

from gnnloom.pipeline.partition.multilevel.pieces import Setting
from gnnloom.pipeline.partition.multilevel.plan import boundary_phases, method_phases
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.stochastic.counts import BatchSizes, measuring_counts, merging_counts
from gnnloom.pipeline.tasks.phase import count
from gnnloom.pipeline.tasks.phase_counts import PhaseCount


def making_counts(
    block_rows: Sequence[int],
    block_nnz: Sequence[int],
    entry_bytes: int,
    options: PartitionOptions,
    setting: Setting,
    *,
    symmetric: bool,
) -> list[PhaseCount]:
    """Count the phases that make parts; none if one process does.

    Args:
        block_rows, block_nnz: rows and nonzeros of each row block; those of the transpose are taken to be alike.
        entry_bytes: of a nonzero in memory.
        symmetric: whether the graph is undirected.

    Raises:
        BudgetError: the memory leaves no room for buffers.
    """
    # One part, or a part for each vertex, leaves no choice.
    if options.parts in {1, sum(block_rows)}:
        return []
    directions = 2 if options.directions == "both" and not symmetric else 1
    if options.model == "stochastic":
        sizes = BatchSizes.even(block_rows, block_nnz, entry_bytes, options.batch_rate, directions)
        # Uniform batches need not be drawn to make the model, only to measure its parts.
        merged = [] if options.batches == "vertex" else merging_counts(sizes)
        return [*merged, *measuring_counts(sizes)]
    method, preset = options.method, options.preset
    rounds = method_phases(block_rows, block_nnz, setting, method, preset, symmetric=symmetric, directions=directions)
    boundary = boundary_phases(sum(block_rows), sum(block_nnz), directions, setting, method, preset)
    return count([*rounds, *boundary])
