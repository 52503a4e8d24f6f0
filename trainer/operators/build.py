"""Algorithms by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gnnloom.storage.artifacts.grid_shards import GridShards
from gnnloom.storage.artifacts.row_shards import RowShard
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.models.registry import MODELS
from gnnloom.trainer.operators.algorithms import settled_grid
from gnnloom.trainer.operators.grid_adjacency import GridAdjacency
from gnnloom.trainer.operators.p2p import PointToPoint
from gnnloom.trainer.operators.row_blocks import RowBlocks
from gnnloom.trainer.operators.summa import Summa
from gnnloom.trainer.operators.tensor3d import Tensor3D

if TYPE_CHECKING:
    from gnnloom.storage.format.arrays import ReadCounter
    from gnnloom.trainer.comm.communicator import Communicator
    from gnnloom.trainer.config.train_config import TrainConfig
    from gnnloom.trainer.kernels.threads import Threads
    from gnnloom.trainer.operators.grid import GridOperator
    from gnnloom.trainer.operators.operator import LayerPlan


def build_operator(
    comm: Communicator,
    source: RowShard | GridShards,
    config: TrainConfig,
    plan: LayerPlan,
    threads: Threads,
    counter: ReadCounter,
) -> PointToPoint | GridOperator:
    """The operator of ``config.algorithm``; reads this rank's adjacency and communicates nothing."""
    dtype = np.dtype(config.dtype)
    if isinstance(source, RowShard):
        multiplies = MODELS[config.model].multiplies
        return PointToPoint(comm, source, config.normalization, dtype, threads, multiplies=multiplies)
    grid = ProcessGrid(comm, settled_grid(config.algorithm, config.grid, comm.size))
    adjacency = GridAdjacency(source, config.normalization, dtype, threads, counter)
    operator = _on_grid(grid, adjacency, config, plan)
    adjacency.forget()
    return operator


def _on_grid(grid: ProcessGrid, adjacency: GridAdjacency, config: TrainConfig, plan: LayerPlan) -> GridOperator:
    if config.algorithm == "tensor3d":
        return Tensor3D(grid, adjacency, plan, config.aggregation_blocks, config.gradient_product)
    if config.algorithm in {"summa", "split3d"}:
        return Summa(grid, adjacency, plan, config.summa_width)
    return RowBlocks(grid, adjacency, plan)
