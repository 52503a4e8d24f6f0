"""Refuses a training that cannot fit the memory of this machine, before it reads anything."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gnnloom.storage.artifacts.row_shards import RowShards
from gnnloom.storage.errors import BudgetError
from gnnloom.storage.machine_memory import available_memory, memory_text
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.projection import UNCERTAINTY, memory_beyond_process
from gnnloom.trainer.training.shard_sizes import sizes_of

if TYPE_CHECKING:
    # It imports numba, which a job on row shards need not load.
    from gnnloom.storage.artifacts.grid_shards import GridShards

logger = logging.getLogger(__name__)


def check_memory(config: TrainConfig, run: str, shards: RowShards | GridShards, ranks_here: int) -> None:
    """Compare what the ranks of this machine will need with the memory that it has left. Communicates nothing.

    The projection is uncertain by a factor of UNCERTAINTY, so a training is refused only if even the least likely need
    exceeds the memory; otherwise a warning is logged. A user's own model, of which nothing is known, is never refused.

    Args:
        config: with the options that samples or a partition decide.
        run: name of the run.
        ranks_here: ranks that share this machine's memory.

    Raises:
        BudgetError: the training cannot fit; says what it needs and what there is.
    """
    if config.chosen_algorithm.footprint is None and not isinstance(shards, RowShards):
        return  # an algorithm of another package, which does not say what it needs
    sizes = sizes_of(shards, config.task, stored=False, ranks=ranks_here)
    needed = sum(memory_beyond_process(config, sizes)[:ranks_here])
    available = available_memory()
    if needed <= available:
        return
    what = f"{ranks_here} ranks" if ranks_here > 1 else "the rank"
    message = (
        f"run {run}: {what} on this machine will need about {memory_text(needed)} of memory, but only"
        f" {memory_text(available)} are available; choose {', '.join(_ways_out(config))}, or train on more machines"
    )
    if needed > UNCERTAINTY * available and config.model_kind.work is not None:
        raise BudgetError(message)
    logger.warning("%s", message)


def _ways_out(config: TrainConfig) -> Iterator[str]:
    """What makes a training smaller."""
    yield "smaller layers (--hidden)"
    if config.mode_kind.is_sampled:
        size = "--parts-per-batch" if config.sampler == "cluster" else "--batch-size"
        yield f"smaller batches ({size}) or fewer that are prepared ahead (--pool)"
        if config.evaluates and config.samples is None:
            # Unlike training, an evaluation holds whole layers of the graph in memory.
            yield "no evaluation (--eval-every 0 --no-final-eval)"
    if config.precision != "bf16":
        yield "--precision bf16"
