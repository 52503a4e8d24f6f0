"""Writes checkpoints while training goes on: a thread of every rank writes a copy of the rank's part.

The copy is made, and rows are exchanged, between two epochs. From then on the ranks exchange files only: each rank
    announces its written data in a small file, and rank 0 publishes the checkpoint after all ranks have. One checkpoint
    is written at a
time, so there is at most one copy; saving the next one first waits for the previous one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from torch import nn

from gnnloom.storage.disk.files import JsonObject, sync_paths
from gnnloom.storage.format.arrays import stored_files
from gnnloom.storage.runs.checkpoint import begin_checkpoint, checkpoint_aside, publish_checkpoint, write_arrays
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.layout.vertex_arrays import announce, announced, collect
from gnnloom.trainer.training.state.checkpoint import Snapshot
from gnnloom.trainer.training.state.optimizer import Optimizer

#: Seconds between checks whether the other ranks have written: initial and maximum value.
_FIRST_LOOK_SECONDS: Final = 0.005
_LONGEST_LOOK_SECONDS: Final = 0.5


@dataclass(frozen=True)
class Destination:
    """Destination of a checkpoint.

    Attributes:
        folder: folder of the checkpoints.
        kept: maximum number of checkpoints that the folder then has.
        facts: facts to store with the checkpoint.
    """

    folder: Path
    kept: int
    facts: JsonObject


class _AbandonedError(Exception):
    """The checkpoint will not be finished."""


class CheckpointWriter:
    """Writes one checkpoint at a time, in its own thread."""

    def __init__(
        self,
        comm: Communicator,
        written: Callable[[], None] = lambda: None,
        published: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare; communicates nothing.

        Args:
            written: called on rank 0, in the thread, before each publication.
            published: the same, after it.
        """
        self._comm, self._written, self._published = comm, written, published
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._abandoned = threading.Event()

    def save(self, epoch: int, model: nn.Module, optimizer: Optimizer, destinations: Sequence[Destination]) -> None:
        """Copy the state after ``epoch`` epochs, and begin to write it to some folders. Collective.

        Waits until the previous checkpoint is written, so that there is one copy at a time.

        Raises:
            CollectiveError: a parameter is not finite.
            BaseException: see :meth:`check`.
        """
        self.finish()
        snapshot = Snapshot.take(self._comm, epoch, model, optimizer)
        if self._comm.rank == 0:
            for destination in destinations:
                aside = begin_checkpoint(destination.folder, epoch)
                for array in snapshot.spread:
                    array.create(aside)
        if snapshot.spread:
            self._comm.barrier()  # no rank writes a chunk before the array's metadata exists
        elif self._comm.rank > 0:
            return
        arguments = (snapshot, tuple(destinations))
        self._thread = threading.Thread(target=self._run, args=arguments, name=f"checkpoint-{epoch}")
        self._thread.start()

    def check(self) -> None:
        """Raise the error of a checkpoint that could not be written; communicates nothing.

        Raises:
            BaseException: the exception of this rank's thread. Other ranks do not know about it.
        """
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def finish(self) -> None:
        """Wait until this rank has written everything that was begun; rank 0 also publishes it.

        Raises:
            BaseException: see :meth:`check`.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def close(self) -> None:
        """Abandon unwritten data; the folder keeps earlier checkpoints. Communicates nothing."""
        self._abandoned.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, snapshot: Snapshot, destinations: Sequence[Destination]) -> None:
        try:
            for destination in destinations:
                self._write(snapshot, destination)
        except _AbandonedError:
            return
        # Any exception ends the training, in the thread that trains.
        except BaseException as error:  # noqa: BLE001
            self._error = error

    def _write(self, snapshot: Snapshot, destination: Destination) -> None:
        """Write this rank's part; on rank 0 then wait for the others, and publish."""
        folder, epoch = destination.folder, snapshot.epoch
        aside = checkpoint_aside(folder, epoch)
        if snapshot.spread:
            self._write_spread(aside, snapshot)
        if self._comm.rank > 0:
            return
        records = write_arrays(aside, snapshot.whole)
        if snapshot.spread:
            for rank in range(self._comm.size):
                self._wait_for(announced(aside, rank))
            records += collect(aside, self._comm.size)
        self._check_wanted()
        self._written()
        publish_checkpoint(folder, epoch, records, destination.facts, destination.kept)
        self._published()

    def _write_spread(self, aside: Path, snapshot: Snapshot) -> None:
        """Write this rank's rows, and announce them."""
        own = []
        for array in snapshot.spread:
            self._check_wanted()
            own.append(array.write(aside))
        # Every rank syncs its own files: another machine cannot flush data that this one has not yet sent to the disk.
        sync_paths(path for record in own for path in stored_files(aside, record))
        announce(aside, self._comm.rank, own)

    def _wait_for(self, file: Path) -> None:
        """Wait until a rank has written its part. A rank that cannot ends the job."""
        seconds = _FIRST_LOOK_SECONDS
        while not file.exists():
            if self._abandoned.wait(seconds):
                raise _AbandonedError
            seconds = min(2 * seconds, _LONGEST_LOOK_SECONDS)

    def _check_wanted(self) -> None:
        if self._abandoned.is_set():
            raise _AbandonedError
