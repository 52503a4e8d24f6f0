"""Algorithms by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gnnloom.trainer.operators.p2p import PointToPoint

if TYPE_CHECKING:
    from gnnloom.storage.row_shards import RowShard
    from gnnloom.trainer.comm import Communicator
    from gnnloom.trainer.config import TrainConfig
    from gnnloom.trainer.kernels.threads import Threads
    from gnnloom.trainer.operators.base import Operator

ALGORITHMS = {"p2p": PointToPoint}


def build_operator(comm: Communicator, shard: RowShard, config: TrainConfig, threads: Threads) -> Operator:
    """The operator of ``config.algorithm``; reads this rank's adjacency and communicates nothing."""
    algorithm = ALGORITHMS[config.algorithm]
    return algorithm(comm, shard, config.normalisation, np.dtype(config.dtype), threads)
