"""Refuses a training that cannot fit the memory of this machine, before it reads anything."""

from __future__ import annotations

import logging

from gnnloom.storage.artifacts.grid_shards import GridShards
from gnnloom.storage.artifacts.row_shards import RowShards
from gnnloom.storage.errors import BudgetError
from gnnloom.storage.machine_memory import available_memory, memory_text
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.projection import UNCERTAINTY, memory_beyond_process
from gnnloom.trainer.training.shard_sizes import sizes_of

logger = logging.getLogger(__name__)


def check_memory(config: TrainConfig, shards: RowShards | GridShards, ranks_here: int) -> None:
    """Compare what the ranks of this machine will need with the memory that it has left. Communicates nothing.

    Ranks need about as much as projected; only what exceeds the memory even if less is needed is refused.

    Args:
        ranks_here: ranks that share this machine's memory.

    Raises:
        BudgetError: the training cannot fit; says what it needs and what there is.
    """
    if config.chosen_algorithm.footprint is None and isinstance(shards, GridShards):
        return  # an algorithm of another package, which does not say what it needs
    needed = sum(memory_beyond_process(config, sizes_of(shards, stored=False))[:ranks_here])
    available = available_memory()
    if needed <= available:
        return
    what = f"{ranks_here} ranks" if ranks_here > 1 else "the rank"
    message = (
        f"run {config.run_name}: {what} on this machine will need about {memory_text(needed)} of memory, but only"
        f" {memory_text(available)} are available; choose smaller layers (--hidden), or train on more machines"
    )
    if needed > UNCERTAINTY * available:
        raise BudgetError(message)
    logger.warning("%s", message)
