"""The number of the epoch that an iteration draws, which processes of one iteration agree on."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.utils.data import get_worker_info

#: Iterations of data loaders whose epochs are remembered.
_REMEMBERED: Final = 64
#: Odd, so that different numbers of iterations give different keys.
_STEP: Final = 0x1E3779B97F4A7C15


class EpochCounter:
    """Gives every iteration the epoch after the one before, whichever process iterates.

    ``torch.utils.data.DataLoader`` iterates in processes of its own, and not in the process that it is used in. What
    the processes of one iteration have in common is the seed that the data loader draws for it. The first of them that
    asks claims an epoch for that seed, and the others find it. A process writes the claim before it advances the
    counter, and reads them in the other order, so two that ask at the same time claim the same epoch: there is no lock.

    Copies that torch makes for its processes share the memory; all others have their own.
    """

    def __init__(self, epoch: int) -> None:
        # The next epoch; and for each of some iterations, its key and its epoch.
        self._shared = torch.zeros(1 + 2 * _REMEMBERED, dtype=torch.int64)
        self._shared.share_memory_()  # type: ignore[no-untyped-call]
        self._begun = 0
        self.set(epoch)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # What torch sends to its processes is shared already.
        self._shared.share_memory_()  # type: ignore[no-untyped-call]

    def set(self, epoch: int) -> None:
        """Let the next iteration have this epoch."""
        self._shared[1:] = 0
        self._shared[0] = epoch

    @property
    def next(self) -> int:
        """The epoch of the next iteration."""
        return int(self._shared[0])

    def claim(self) -> int:
        """The epoch of an iteration that begins now in this process."""
        info = get_worker_info()
        self._begun += 1
        epoch = self.next
        if info is not None:
            # A worker that is kept for several iterations keeps its seed.
            key = (info.seed - info.id + _STEP * self._begun) % (1 << 63) or 1
            claims = self._shared[1:].view(_REMEMBERED, 2)
            found = (claims[:, 0] == key).nonzero()
            if len(found):
                return int(claims[found[0, 0], 1])
            place = epoch % _REMEMBERED
            claims[place, 1] = epoch
            claims[place, 0] = key
        self._shared[0] = epoch + 1
        return epoch
