"""Propagates a matrix over the row shards of all ranks and stores the steps, one block of columns after the other."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.shards.row_shards import RowShard
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.communicator import Communicator, Reduction
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.propagation.adjacency_product import AdjacencyProduct
from gnnloom.trainer.propagation.column_store import columns_of, consecutive
from gnnloom.trainer.propagation.memory import MemoryPlan
from gnnloom.trainer.propagation.source_rows import SourceColumns, SourceRows
from gnnloom.trainer.propagation.steps import Propagation
from gnnloom.trainer.propagation.stored_steps import StoredSteps, unfinished

logger = logging.getLogger(__name__)


class Clock:
    """Seconds of a rank's activities, by name."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("read", "multiply", "write"), 0.0)

    @contextmanager
    def measuring(self, name: str) -> Iterator[None]:
        """Add the time inside the block."""
        started = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - started

    def through(self, steps: Iterator[tuple[int, torch.Tensor]], name: str) -> Iterator[tuple[int, torch.Tensor]]:
        """The same steps; adds the time of making each."""
        while True:
            with self.measuring(name):
                found = next(steps, None)
            if found is None:
                return
            yield found
            # The next step takes its memory.
            del found


def propagate_blocks(
    comm: Communicator,
    shard: RowShard,
    source: SourceRows,
    writer: ArtifactWriter,
    what: Propagation,
    plan: MemoryPlan,
    place: Place,
    stop: Callable[[], bool],
    clock: Clock,
) -> bool:
    """Store all blocks of columns that an earlier process has not recorded. Collective.

    Args:
        shard: the rank's shard, with the adjacency in the planned place.
        stop: whether this rank was asked to stop; all ranks stop after the next columns.
        clock: gets the seconds of this rank.

    Returns:
        Whether all blocks are stored.
    """
    waiting = unfinished(comm, writer, range(plan.num_blocks))
    if not waiting:
        return True
    num_vertices, num_columns = shard.shards.num_vertices, source.num_columns
    columns = SourceColumns(source, writer.work / f"rank-{comm.rank:05d}")
    with clock.measuring("read"):
        columns.prepare(waiting, plan.width)
        product = together(comm, lambda: AdjacencyProduct(comm, shard, what.normalization, place))
        product.exchanged.agree()
    groups = list(consecutive(waiting, plan.width))
    # Written columns, which are synced while the next columns are multiplied.
    written: StoredSteps | None = None
    for number, blocks in enumerate(groups):
        started, span = time.perf_counter(), columns_of(blocks, num_columns)
        stored = StoredSteps(
            writer, product.layout, (num_vertices, num_columns), what.stored, blocks, place.threads.num_threads
        )
        steps = product.powers(_read(columns, blocks, source, place, clock), what.steps, what.teleport)
        for step, values in clock.through(steps, "multiply"):
            if step in what.stored:
                with clock.measuring("write"):
                    stored.write(step, values)
            # The next step takes its memory.
            del values
        with clock.measuring("write"):
            if written is not None:
                written.finish()
            stored.begin_sync()
        written = stored
        seconds = time.perf_counter() - started
        logger.info("columns %d-%d of %d: %.1f s", span.start, span.stop - 1, num_columns, seconds)
        if number + 1 < len(groups) and _any_stops(comm, place, stop):
            written.finish()
            return False
    if written is not None:
        with clock.measuring("write"):
            written.finish()
    return True


def _read(columns: SourceColumns, blocks: list[int], source: SourceRows, place: Place, clock: Clock) -> torch.Tensor:
    span = columns_of(blocks, source.num_columns)
    dense = place.empty((source.num_rows, span.stop - span.start), torch.float32)
    with clock.measuring("read"):
        place.fill(dense, lambda array: columns.read(blocks, array))
    return dense


def _any_stops(comm: Communicator, place: Place, stop: Callable[[], bool]) -> bool:
    """Whether any rank was asked to stop. Collective."""
    asked = place.tensor([float(stop())], torch.float64)
    comm.all_reduce(asked, Kind.SETUP, Reduction.MAX)
    return bool(asked)
