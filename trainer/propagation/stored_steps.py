"""Writes steps into the artifact, in the order of the dataset's vertices; each rank writes its own chunks."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.propagated import (
    DIMS,
    DTYPE,
    block_columns,
    stored_chunk_rows,
    value_path,
)
from gnnloom.storage.disk.files import sync_paths
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.arrays import ArrayRecord, create_array, stored_files, write_rows
from gnnloom.storage.format.artifact import ArtifactWriter
from gnnloom.storage.format.task_record import merge_pieces
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.redistribute import VertexOrder
from gnnloom.trainer.layout.vertex_arrays import announce, collect


def task_of(block: int) -> str:
    """Name of the task that stores a block of columns of all steps."""
    return f"columns/{block:05d}"


class StoredSteps:
    """Some consecutive blocks of columns of all stored steps, while they are written. Methods are collective."""

    def __init__(
        self,
        writer: ArtifactWriter,
        layout: Layout,
        shape: tuple[int, int],
        steps: Sequence[int],
        blocks: Sequence[int],
        threads: int,
    ) -> None:
        """Make the arrays; they replace arrays that a killed process may have left.

        Args:
            shape: shape of a step: all vertices, all columns.
            steps: stored steps.
            blocks: consecutive blocks.
            threads: number of threads that compress chunks.
        """
        self._writer, self._comm, self._place, self._shape = writer, layout.grid.comm, layout.place, shape
        self._steps, self._blocks, self._threads = steps, blocks, threads
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gnnloom-sync")
        self._order = VertexOrder(layout, shape[0], Kind.PREDICTION)
        self._chunk_rows = stored_chunk_rows(shape[0])
        empty = [self._empty(step, block) for step, block in itertools.product(steps, blocks)]
        #: The arrays, with the chunks that this rank has written.
        self._written: list[ArrayRecord] = empty
        if self._comm.rank == 0:
            for record in empty:
                create_array(writer.path, record.path, record.shape, DTYPE, DIMS, self._chunk_rows)
        # No rank writes a chunk before the array's metadata exists.
        self._comm.barrier()

    def _empty(self, step: int, block: int) -> ArrayRecord:
        columns = block_columns(block, self._shape[1])
        shape = (self._shape[0], columns.stop - columns.start)
        return ArrayRecord(value_path(step, block), shape, DTYPE.name, DIMS, ())

    def write(self, step: int, values: Tensor) -> None:
        """Write these columns of a step.

        Args:
            values: (num_rows, columns of the blocks) of the layout.

        Raises:
            InputError: a value is not a finite number.
        """
        first = block_columns(self._blocks[0], self._shape[1]).start

        def put(start: int, block: int, chunk: NDArray[Any]) -> ArrayRecord:
            columns = block_columns(block, self._shape[1])
            own = np.ascontiguousarray(chunk[:, columns.start - first : columns.stop - first])
            if not np.isfinite(own).all():
                raise InputError(
                    f"{self._writer.path}: step {step} has a value that is not a finite number: values grow with each"
                    " step; normalize the adjacency, or use fewer steps"
                )
            return write_rows(self._writer.path, value_path(step, block), start, own)

        pending: deque[Future[ArrayRecord]] = deque()
        with ThreadPoolExecutor(self._threads) as pool:
            for start, rows in self._order.chunks(values, self._chunk_rows):
                for block in self._blocks:
                    pending.append(pool.submit(self._place.store, rows, partial(put, start, block)))
                    # Each waiting write keeps its chunk in memory.
                    if len(pending) > self._threads:
                        self._written.append(pending.popleft().result())
            self._written += [each.result() for each in pending]

    def begin_sync(self) -> None:
        """Make everything that this rank has written durable, in a thread, while other columns are multiplied."""
        self._records = merge_pieces(self._written)
        # By the ranks, all at the same time: rank 0 would sync one chunk after the other.
        files = [path for record in self._records for path in stored_files(self._writer.path, record)]
        self._syncing = self._thread.submit(sync_paths, files)

    def finish(self) -> None:
        """Wait until everything is durable, and record the blocks as done."""
        comm, writer = self._comm, self._writer
        self._syncing.result()
        self._thread.shutdown()
        announced = writer.work / "ranks"
        # Rank 0 reads and removes them, so they need not survive a crash.
        announce(announced, comm.rank, self._records)
        comm.barrier()
        if comm.rank == 0:
            found = {record.path: record for record in collect(announced, comm.size)}
            for block in self._blocks:
                with writer.task(task_of(block)) as output:
                    for step in self._steps:
                        output.add(found[value_path(step, block)])
        # No rank continues before the blocks are recorded.
        comm.barrier()


def unfinished(comm: Communicator, writer: ArtifactWriter, blocks: Iterable[int]) -> list[int]:
    """The blocks that no earlier process has recorded, the same on every rank. Collective."""
    blocks = list(blocks)
    done = np.zeros(len(blocks))
    if comm.rank == 0:
        recorded = writer.recorded_of(map(task_of, blocks))
        done = np.array([task_of(block) in recorded for block in blocks], np.float64)
    # One rank looks, so that ranks that see the folder at different moments do not disagree.
    agreed = comm.gather_numbers(done.tolist())[0]
    return [block for block, is_done in zip(blocks, agreed, strict=True) if not is_done]
