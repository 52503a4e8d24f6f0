"""Iterates over the batches of a stream: in this process, with threads that prepare ahead, or in torch's workers."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from torch.utils.data import IterableDataset, get_worker_info

from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import counted
from gnnloom.trainer.loader.data import as_data
from gnnloom.trainer.loader.epochs import EpochCounter, as_index, check_epoch
from gnnloom.trainer.loader.streams import BatchSize, Source, Stream

if TYPE_CHECKING:
    from torch_geometric.data.data import Data
    from torch_geometric.data.hetero_data import HeteroData

LOGGER: Final = logging.getLogger("gnnloom.loader")
#: Default maximum of threads that prepare batches: they share the memory's bandwidth with the model.
_THREADS: Final = 4


@dataclass(frozen=True)
class Schedule:
    """The batches of an iteration, and how they are prepared.

    Attributes:
        rank, size: the iteration has the batches ``rank``, ``rank + size``, and so on, of an epoch.
        drop_last: leave out a last batch that is smaller than the others, and batches that not every rank has.
        threads: number of threads that prepare batches ahead; None for one per core, at most 4, and none in torch's
            workers.
        pool: maximum number of batches that are prepared ahead; None for one more than threads.
    """

    rank: int = 0
    size: int = 1
    drop_last: bool = False
    threads: int | None = None
    pool: int | None = None

    def __post_init__(self) -> None:
        """Raises InputError if there is no such rank."""
        if not 0 <= self.rank < self.size:
            raise InputError(f"rank {self.rank} of {self.size}: expected a rank from 0 to {self.size - 1}")

    @property
    def num_threads(self) -> int:
        """Threads of this process that prepare batches."""
        if self.threads is not None:
            return self.threads
        return 0 if get_worker_info() is not None else min(len(os.sched_getaffinity(0)), _THREADS)

    @property
    def num_ahead(self) -> int:
        """Maximum number of batches that are prepared ahead."""
        # While one is taken, every thread has another one to prepare. Each more is memory of a whole batch.
        return self.num_threads + 1 if self.pool is None else self.pool


class Loader(IterableDataset["Data | HeteroData"]):
    """The batches of one rank, epoch after epoch, as ``Data`` or ``HeteroData`` of PyTorch Geometric.

    Every iteration has the next epoch; :meth:`set_epoch` chooses another epoch. Any process can make any batch, so a
    copy in another process gives the same batches. In the workers of ``torch.utils.data.DataLoader(loader,
    batch_size=None, num_workers=K)`` each worker makes every K-th batch, and the batches keep their order.

    Attributes:
        source: source of the batches.
        schedule: choice of the batches, and how they are prepared.
    """

    def __init__(self, source: Source, schedule: Schedule, epoch: int = 0) -> None:
        """Open the source, so that missing data are found before the first batch.

        Raises:
            InputError: data are missing, or no batch is left for a rank.
        """
        self.source, self.schedule = source, schedule
        self._epochs = EpochCounter(epoch)
        self._opened: Stream | None = source.open()
        self._is_begun = False
        if not len(self) and schedule.drop_last:
            count = self._opened.num_batches
            raise InputError(
                f"{counted(count, 'batch')} for {counted(schedule.size, 'rank')}: no whole one for each; use smaller"
                " batches"
            )

    def __getstate__(self) -> dict[str, Any]:
        # Another process maps the files itself.
        return {**self.__dict__, "_opened": None}

    def __repr__(self) -> str:
        return f"Loader({counted(len(self), 'batch')} per epoch, the next epoch is {self.epoch})"

    def __len__(self) -> int:
        """Batches of an epoch that this rank has."""
        return len(self._numbers)

    @property
    def expected(self) -> BatchSize | None:
        """The expected size of a batch of vertices of a graph with types; None for other batches.

        It follows from the numbers of vertices and edges in the store. It is printed (logger ``gnnloom.loader``, level
        INFO) before the first batch.
        """
        return self.source.expected()

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return self._epochs.next

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration have this epoch, also in workers of torch that are running.

        Raises:
            InputError: the epoch is not a number from 0 to 2^63 - 2.
        """
        self._epochs.set(epoch)

    def __iter__(self) -> Iterator[Data | HeteroData]:
        # The epoch is chosen at the first batch: Lightning also makes iterators that it never uses.
        numbers, worker, schedule = self._numbers, get_worker_info(), self.schedule
        if worker is not None:
            numbers = numbers[worker.id :: worker.num_workers]
        epoch = self._epochs.claim()
        if worker is None and LOGGER.isEnabledFor(logging.INFO) and not self._is_begun:
            size, self._is_begun = self.expected, True
            if size is not None:
                LOGGER.info("expected in a batch: %s", size)
        with closing(self._stream.of_epoch(epoch, numbers, schedule.num_threads, schedule.num_ahead)) as batches:
            for fields in batches:
                yield as_data(fields, has_types=self.source.has_types)

    def batch(self, number: int, epoch: int | None = None) -> Data | HeteroData:
        """One batch of an epoch; its number counts the batches of all ranks.

        Args:
            epoch: None for the epoch of the next iteration.

        Raises:
            InputError: there is no such batch or epoch.
        """
        stream, chosen = self._stream, self.epoch if epoch is None else epoch
        check_epoch(chosen)
        if not 0 <= as_index(number) < stream.num_batches:
            raise InputError(f"batch {number!r} of an epoch of {counted(stream.num_batches, 'batch')}")
        return as_data(stream.prepare(int(chosen), int(number)), has_types=self.source.has_types)

    @property
    def _stream(self) -> Stream:
        if self._opened is None:
            self._opened = self.source.open()
        return self._opened

    @property
    def _numbers(self) -> range:
        """The batches of this rank."""
        stream, schedule = self._stream, self.schedule
        count = stream.num_batches
        if schedule.drop_last:
            count -= not stream.is_last_whole
            count -= count % schedule.size
        return range(schedule.rank, count, schedule.size)
