"""What the sort asks of a caller that wants ids renumbered while they are sorted."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class NumberTable(Protocol):
    """A bijection between the ids of a source and the numbers 0, 1, ..., opened by one task."""

    def numbers(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """(num_ids,) int64 number of each id."""
        ...

    def ids(self, start: int, stop: int) -> NDArray[np.int64]:
        """(stop - start,) int64 ids that have the numbers ``start`` to ``stop``."""
        ...


class Renumbering(Protocol):
    """Names a table that is complete before the sort begins; small and picklable, because every task holds it."""

    def open(self) -> NumberTable:
        """Open the table; called once per task."""
        ...
