"""Refuses a training that cannot fit the memory of this machine, before it reads anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gnnloom.storage.errors import BudgetError
from gnnloom.storage.machine_memory import available_memory, memory_text
from gnnloom.storage.samplers.registry import SAMPLERS
from gnnloom.trainer.config.train_config import TrainConfig


def check_memory(config: TrainConfig, run: str, needed: Sequence[int]) -> None:
    """Compare what the ranks of this machine will need with the memory that it has left. Communicates nothing.

    Args:
        run: name of the run.
        needed: bytes of each rank that shares this machine's memory, beyond what its process has already.

    Raises:
        BudgetError: the training cannot fit; says what it needs and what there is.
    """
    available = available_memory()
    if sum(needed) > available:
        what = f"{len(needed)} ranks" if len(needed) > 1 else "the rank"
        raise BudgetError(
            f"run {run}: {what} on this machine will need about {memory_text(sum(needed))} of memory, but only"
            f" {memory_text(available)} are available; choose {', '.join(_ways_out(config))}, or train on more machines"
        )


def _ways_out(config: TrainConfig) -> Iterator[str]:
    """What makes a training smaller."""
    yield "smaller layers (--hidden)"
    if config.mode_kind.is_sampled:
        size = "--parts-per-batch" if SAMPLERS[config.sampler].draws_parts else "--batch-size"
        yield f"smaller batches ({size}) or fewer that are prepared ahead (--pool)"
        if config.evaluates and config.samples is None:
            # Unlike training, an evaluation holds whole layers of the graph in memory.
            yield "no evaluation (--eval-every 0 --no-final-eval)"
    if config.precision != "bf16":
        yield "--precision bf16"
