"""The number of the epoch that an iteration draws, which processes of one iteration agree on."""

from __future__ import annotations

import operator
from threading import Lock
from typing import Any, Final

import torch
from torch.utils.data import get_worker_info

from gnnloom.storage.errors import InputError
from gnnloom.trainer.place.place import Place

#: Iterations of data loaders whose epochs are remembered, and workers of one whose claims are told apart.
_REMEMBERED: Final = 64
_WORKERS: Final = 64
#: Odd, so that different numbers of iterations give different keys.
_STEP: Final = 0x1E3779B97F4A7C15


class EpochCounter:
    """Gives every iteration the next epoch, in any process.

    ``torch.utils.data.DataLoader`` iterates in its own processes, and not in the process that uses it. The
    processes of one iteration share the seed that the data loader draws for it. The first process that asks claims an
    epoch for that seed, and each other process takes that epoch once: programs that call ``torch.manual_seed`` before
    every epoch give several iterations the same seed. There is no lock between processes: a process writes the claim
    before it advances the counter, and reads the two in the other order, so that two processes that ask at the same
    time claim the same epoch. The threads of one process share a lock.

    Copies that torch makes for its processes share the memory; all others have their own.
    """

    def __init__(self, epoch: int) -> None:
        # The next epoch; and for each of some iterations, its key, its epoch, and the latest epoch of each worker here.
        self._shared = Place().lasting((1 + (2 + _WORKERS) * _REMEMBERED,), torch.int64)
        self._shared.share_memory_()  # type: ignore[no-untyped-call]
        self._begun, self._lock = 0, Lock()
        self.set(epoch)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock())
        # Tensors that torch sends to its processes are already shared.
        self._shared.share_memory_()  # type: ignore[no-untyped-call]

    def set(self, epoch: int) -> None:
        """Let the next iteration have this epoch.

        Raises:
            InputError: it is not a number from 0 to 2^63 - 2.
        """
        check_epoch(epoch)
        self._shared[1:] = 0
        self._shared[0] = epoch

    @property
    def next(self) -> int:
        """The epoch of the next iteration."""
        return int(self._shared[0])

    def claim(self) -> int:
        """The epoch of an iteration that begins now in this process."""
        info = get_worker_info()
        if info is not None:
            # Only one thread of a worker iterates, and another thread might have held a lock when the worker was
            # forked.
            return self._claim(info.seed - info.id, info.id)
        with self._lock:
            epoch = self.next
            self._shared[0] = epoch + 1
        return epoch

    def _claim(self, seed: int, worker: int) -> int:
        # A worker that is kept for several iterations keeps its seed.
        self._begun += 1
        key, epoch = (seed + _STEP * self._begun) % (1 << 63) or 1, self.next
        keys, epochs, *latest = self._shared[1:].view(2 + _WORKERS, _REMEMBERED)
        mine = latest[worker % _WORKERS]
        # Epochs that worker ``number`` has not received yet.
        found = ((keys == key) & (mine <= epochs)).nonzero()
        place = int(found[0, 0]) if len(found) else epoch % _REMEMBERED
        if not len(found):
            epochs[place] = epoch
            keys[place] = key
            self._shared[0] = epoch + 1
        mine[place] = epochs[place] + 1
        return int(epochs[place])


def check_epoch(epoch: int) -> None:
    """Check the number of an epoch.

    Raises:
        InputError: it is not a number from 0 to 2^63 - 2.
    """
    if not 0 <= as_index(epoch) < (1 << 63) - 1:
        raise InputError(f"epoch {epoch!r}: expected an integer from 0 to 2^63 - 2")


def as_index(number: int) -> int:
    """An integer that a user has given, as Python's; -1 if it is not one."""
    try:
        return operator.index(number)
    except TypeError:
        return -1
