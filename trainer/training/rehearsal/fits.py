"""Refuses a training that cannot fit the memory of this machine, before it reads anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gnnloom.storage.errors import BudgetError
from gnnloom.storage.machine_memory import available_memory, memory_text
from gnnloom.storage.samplers.registry import SAMPLERS
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.config.continuation import OpenedRun
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.rehearsal.projection import with_drawn_options
from gnnloom.trainer.training.rehearsal.rank_memory import rehearse


def check_fits(comm: Communicator, opened: OpenedRun) -> int | None:
    """Check that the training can fit the memory of the first rank's machine. Collective.

    Returns:
        What the busiest rank will take beyond the process itself; None if that is not known.

    Raises:
        CollectiveError: the training cannot fit; says what it needs and what there is.
    """

    def find() -> int:
        drawn = with_drawn_options(opened.config, opened.dataset, opened.shards.shards.artifact)
        memory = rehearse(replace(opened, config=drawn), comm.rank)
        return -1 if memory is None else memory.total

    needed: list[int] = comm.gather_numbers([together(comm, find)])[:, 0].astype(int).tolist()
    ranks_here = comm.ranks_on_this_machine()
    if min(needed) < 0:
        return None
    # Machines of one job are alike, so one rank acts for all.
    together(comm, lambda: _check(opened.config, needed[:ranks_here]) if comm.rank == 0 else None)
    return max(needed)


def _check(config: TrainConfig, needed: Sequence[int]) -> None:
    """Compare what the ranks of this machine will need with the memory that it has left. Communicates nothing.

    Args:
        needed: bytes of each rank that shares this machine's memory, beyond what its process has already.

    Raises:
        BudgetError: the training cannot fit.
    """
    available = available_memory()
    if sum(needed) > available:
        what = f"{len(needed)} ranks" if len(needed) > 1 else "the rank"
        raise BudgetError(
            f"run {config.run_name}: {what} on this machine will need about {memory_text(sum(needed))} of memory, but"
            f" only {memory_text(available)} are available; choose {', '.join(_ways_out(config))}, or train on more"
            " machines"
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
