"""Which shards a run reads."""

from __future__ import annotations

from gnnloom.storage.artifacts.grid_shards import GridShards
from gnnloom.storage.artifacts.row_shards import RowShard
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.operators.algorithms import settled_grid


def open_source(
    dataset: Dataset, config: TrainConfig, rank: int, num_ranks: int, counter: ReadCounter
) -> RowShard | GridShards:
    """What a rank reads: its row shard, or the grid shards, which serve all ranks.

    Raises:
        InputError: the shards are made for another number of ranks, or the process grid does not fit it.
        NotFoundError: there are no such shards.
    """
    if config.algorithm == "p2p":
        return _open_shard(dataset, config, rank, num_ranks, counter)
    if config.ranks != num_ranks:
        raise InputError(
            f"the job has {num_ranks} ranks, {config.ranks} were configured; start as many, or say --ranks"
        )
    settled_grid(config.algorithm, config.grid, num_ranks)
    try:
        return dataset.grid_shards(config.shards, counter, permutation=config.permutation)
    except InputError as error:
        raise InputError(f"{error} (--shards KEY, or another --permutation)") from error
    except NotFoundError as error:
        permutation = config.permutation or "double"
        permutation += f" --parts {config.ranks}" if permutation == "partition" else ""
        raise NotFoundError(
            f"{error}; algorithm {config.algorithm} reads grid shards: make some with"
            f" `gnnloom shard {dataset.name} --grid 16x16 --permutation {permutation}`"
        ) from error


def _open_shard(dataset: Dataset, config: TrainConfig, rank: int, num_ranks: int, counter: ReadCounter) -> RowShard:
    """The shard of one rank; checks that the shards are made for this number of ranks."""
    parts = None if config.shards else config.ranks
    try:
        shards = dataset.row_shards(parts=parts, key=config.shards, counter=counter, method=config.method)
    except NotFoundError as error:
        raise NotFoundError(
            f"{error}; make some with `gnnloom partition {dataset.name} --parts {config.ranks}` and `gnnloom shard"
            f" {dataset.name} --parts {config.ranks}`, or train on as many ranks as there are parts"
        ) from error
    if not shards.num_parts == config.ranks == num_ranks:
        raise InputError(
            f"{shards.artifact.path}: shards for {shards.num_parts} ranks, the run has {num_ranks}"
            f" (configured: {config.ranks}); start {shards.num_parts} ranks or run"
            f" `gnnloom shard {dataset.name} --parts {num_ranks}`"
        )
    return shards.shard(rank, counter)
