"""What the algorithms over grid shards share when they build an operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gnnloom.trainer.algorithms.algorithm import OperatorContext
from gnnloom.trainer.data.open_shards import SharedGridShards

if TYPE_CHECKING:
    from gnnloom.trainer.comm.process_grid import ProcessGrid
    from gnnloom.trainer.operators.grid import GridOperator
    from gnnloom.trainer.operators.grid_adjacency import GridAdjacency


def build_on_grid(
    context: OperatorContext[SharedGridShards], build: Callable[[ProcessGrid, GridAdjacency], GridOperator]
) -> GridOperator:
    """Build an operator from the process grid and the adjacency that it reads. Communicates nothing."""
    from gnnloom.trainer.comm.process_grid import ProcessGrid  # noqa: PLC0415 - imports MPI
    from gnnloom.trainer.operators.grid_adjacency import GridAdjacency  # noqa: PLC0415 - imports numba

    grid = ProcessGrid(context.comm, context.axes, context.place)
    adjacency = GridAdjacency(context.shards.shards, context.normalization, context.place, context.counter)
    operator = build(grid, adjacency)
    # Only the operator holds the blocks from here on, so each is freed when the operator releases it.
    adjacency.forget()
    return operator
