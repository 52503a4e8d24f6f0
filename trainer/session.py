"""Everything that one rank needs for a run: its shard, operator and model."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from gnnloom.storage.arrays import ReadCounter
from gnnloom.storage.catalog import Catalog, Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.row_shards import RowShard
from gnnloom.trainer.comm import Communicator
from gnnloom.trainer.config import TrainConfig
from gnnloom.trainer.data import normalise_feature, read_feature
from gnnloom.trainer.kernels.threads import Threads
from gnnloom.trainer.models.gcn import GCN, Inputs
from gnnloom.trainer.models.registry import build_model
from gnnloom.trainer.operators.base import Operator
from gnnloom.trainer.operators.registry import build_operator


@dataclass
class Session:
    """One rank's part of a run.

    Attributes:
        feature: (num_rows, num_features) of the first layer's layout, until :meth:`take_inputs`.
        counter: bytes that this rank read.
    """

    comm: Communicator
    config: TrainConfig
    dataset: Dataset
    shard: RowShard
    operator: Operator
    model: GCN
    feature: torch.Tensor | None
    counter: ReadCounter

    def take_inputs(self) -> Inputs:
        """What the model takes: the features, or A times the features where that never changes. Collective.

        The session forgets the features, so that they are in memory only where they are needed.
        """
        if self.feature is None:
            raise ValueError("the inputs of a session can be taken once")
        feature = normalise_feature(self.feature, self.config.feature_norm, self.comm)
        self.feature = None
        if not self.config.skip_input_gradient:
            return Inputs(feature.requires_grad_())
        if not self.config.input_is_cached:
            return Inputs(feature)
        with torch.no_grad():
            return Inputs(self.operator.propagate(feature, 0), propagated=True)


def threads_per_rank(comm: Communicator, wanted: int) -> int:
    """Threads that each rank uses: as wanted, or this machine's cores shared by its ranks. Collective."""
    return wanted or max(1, len(os.sched_getaffinity(0)) // comm.ranks_on_this_machine())


def open_session(comm: Communicator, config: TrainConfig, num_threads: int) -> Session:
    """Read this rank's shard and build its operator and model. Communicates nothing.

    Raises:
        InputError: the shards are made for another number of ranks, or lack features.
        NotFoundError: there is no such dataset, or no such shards.
    """
    torch.set_num_threads(num_threads)
    threads = Threads(num_threads)
    counter = ReadCounter()
    dataset = Catalog(config.catalog).dataset(config.dataset)
    shard = open_shard(dataset, config, comm.rank, comm.size, counter)
    feature = read_feature(shard, getattr(torch, config.dtype))
    operator = build_operator(comm, shard, config, threads)
    model = build_model(operator, config, feature.shape[1], shard.shards.num_classes, threads)
    return Session(comm, config, dataset, shard, operator, model, feature, counter)


def open_shard(dataset: Dataset, config: TrainConfig, rank: int, num_ranks: int, counter: ReadCounter) -> RowShard:
    """The shard of one rank; checks that the shards are made for this number of ranks."""
    parts = None if config.shards else config.ranks
    shards = dataset.row_shards(parts=parts, key=config.shards, counter=counter, method=config.method)
    if not shards.num_parts == config.ranks == num_ranks:
        raise InputError(
            f"{shards.artifact.path}: shards for {shards.num_parts} ranks, the run has {num_ranks}"
            f" (configured: {config.ranks}); start {shards.num_parts} ranks or run"
            f" `gnnloom shard {dataset.name} --parts {num_ranks}`"
        )
    return shards.shard(rank, counter)
