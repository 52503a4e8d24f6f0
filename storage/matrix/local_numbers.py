"""Finds the local numbers of a rank's vertices by their ids, whatever the order of the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class LocalNumbers:
    """The local numbers of own vertices.

    Attributes:
        ascending: (num_own,) int64 global ids, ascending.
        number: (num_own,) int64 local number of each; None if they ascend.
    """

    ascending: NDArray[np.int64]
    number: NDArray[np.int64] | None

    @classmethod
    def of(cls, vertex: NDArray[np.int64]) -> LocalNumbers:
        """The numbers of vertices.

        Args:
            vertex: (num_own,) int64 distinct global ids by local number.
        """
        if (vertex[1:] > vertex[:-1]).all():
            return cls(vertex, None)
        order = np.argsort(vertex)
        return cls(vertex[order], order)

    def __call__(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """(num_ids,) int64 local numbers of global ids; all must be ids of own vertices."""
        owns_all = len(self.ascending) and int(self.ascending[-1]) == len(self.ascending) - 1
        # Ascending ids that end like this are 0 to n-1. Otherwise a binary search, without a table of all vertices.
        found = ids.astype(np.int64, copy=False) if owns_all else np.searchsorted(self.ascending, ids)
        return found if self.number is None else self.number[found]
