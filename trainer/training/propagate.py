"""Propagates a matrix of the vertices on the row shards of all ranks, and stores the steps as an artifact."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnloom.storage.artifacts.propagated import facts_of
from gnnloom.storage.catalog import Catalog, Dataset
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.format.artifact import Artifact, ArtifactWriter
from gnnloom.storage.meters import peak_memory
from gnnloom.storage.shards.row_shards import RowShard
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.watchdog import WAITING, Watch
from gnnloom.trainer.config.propagate_config import PropagateConfig
from gnnloom.trainer.config.propagation_plan import PropagationPlan, free_memory, plan_of, propagation_of, summary
from gnnloom.trainer.data.open_shards import ROW_SHARDS
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.propagation.memory import RankSizes
from gnnloom.trainer.propagation.source_rows import PROPAGABLE, SourceRows
from gnnloom.trainer.propagation.stage import Clock, propagate_blocks
from gnnloom.trainer.propagation.stored_steps import task_of
from gnnloom.trainer.training.alike import alike_data


def propagate(comm: Communicator, config: PropagateConfig, stop: Callable[[], bool]) -> dict[str, Any]:
    """Store the steps, unless they are stored already. Collective.

    Args:
        stop: whether this rank was asked to stop; all stop after the next columns.

    Returns:
        The summary, the same on every rank; its ``state`` is ``finished`` or ``stopped``.

    Raises:
        CollectiveError: there are no such shards, they lack the matrix, or the memory is too small.
    """
    started, counter = time.perf_counter(), ReadCounter()
    threads = config.threads or comm.this_machine().threads
    # By default torch uses all cores in every rank.
    torch.set_num_threads(threads)

    def read() -> tuple[Dataset, RowShard, SourceRows]:
        dataset = Catalog(config.catalog).dataset(config.dataset)
        shard = ROW_SHARDS.open(dataset, config.shard_request, comm.rank, comm.size, counter).shard
        return dataset, shard, PROPAGABLE[config.matrix].open(shard)

    dataset, shard, source = together(comm, read, lambda found: alike_data(config.inputs(found[1].shards), {}))
    planned = _agreed_plan(comm, config, shard, threads)
    with _writing(comm, dataset, config, shard) as writer:
        # The first rank looks, as it holds the lock; a shared file system may show the manifest to others later.
        if comm.gather_numbers([writer.is_complete])[0, 0]:
            return summary(Artifact(writer.path))
        plan = planned.memory
        place, what = Place(num_threads=threads), propagation_of(config)
        own = shard.streamed() if plan.on_disk else shard
        clock = Clock()
        if not propagate_blocks(comm, own, source, writer, what, plan, place, stop, clock):
            return {"state": "stopped", "key": writer.key}
        per_rank = comm.gather_numbers([counter.bytes, peak_memory()]).astype(int)
        seconds = comm.gather_numbers(list(clock.seconds.values()))
        found = planned.described() | {
            "ranks": comm.size,
            "seconds": round(time.perf_counter() - started, 3),
            **{
                f"{name}_seconds": np.round(of_ranks, 3).tolist()
                for name, of_ranks in zip(clock.seconds, seconds.T, strict=True)
            },
            "bytes_read": per_rank[:, 0].tolist(),
            "peak_memory": per_rank[:, 1].tolist(),
        }
        if comm.rank == 0:
            tasks = [task_of(block) for block in range(plan.num_blocks)]
            facts = facts_of(source.num_columns, what.stored) | {"nonzeros": planned.nonzeros}
            writer.commit(tasks, {"vertex": shard.shards.num_vertices}, facts, {"run": found})
        # No rank returns before the artifact is there.
        comm.barrier()
        return summary(Artifact(writer.path)) | {"reused": False}


def _agreed_plan(comm: Communicator, config: PropagateConfig, shard: RowShard, threads: int) -> PropagationPlan:
    """The plan for all ranks, the same on each. Collective."""
    sizes, memory = RankSizes.of(shard), config.memory
    if memory is None:
        memory = free_memory(comm.this_machine().ranks)
    numbers = comm.gather_numbers([memory, threads, *astuple(sizes)]).astype(np.int64)
    all_sizes = [RankSizes(*row) for row in numbers[:, 2:].tolist()]
    # The smallest machine decides.
    memory, threads = int(numbers[:, 0].min()), int(numbers[:, 1].max())
    return together(comm, lambda: plan_of(config, shard.shards, all_sizes, memory, threads))


@contextmanager
def _writing(
    comm: Communicator, dataset: Dataset, config: PropagateConfig, shard: RowShard
) -> Iterator[ArtifactWriter]:
    """The artifact, whose lock the first rank holds inside the block. Collective."""
    parameters, inputs = config.parameters(), config.inputs(shard.shards)
    scratch = Scratch(None if config.scratch is None else Path(config.scratch))
    watch = Watch(config.wait_timeout, None, comm.rank, comm.size)
    with ExitStack() as held:

        def lock() -> ArtifactWriter:
            if comm.rank == 0:
                # While another process makes the artifact, this waits, and so do the other ranks.
                return held.enter_context(ArtifactWriter.begin(dataset.path, "propagated", parameters, inputs, scratch))
            key = config.key(shard.shards.artifact.key, shard.shards.artifact.inputs)
            return ArtifactWriter(dataset.path / "propagated" / key, "propagated", key)

        writer = together(comm, lock)
        held.callback(setattr, comm.traffic, "watch", comm.traffic.watch)
        watch.folder = writer.work / WAITING
        comm.traffic.watch = watch
        yield writer
