"""What the sort asks of a caller whose source has numbers in place of its ids."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class OriginalIds(Protocol):
    """The ids that numbers stand for; complete before the sort begins, and small and picklable: every task holds it."""

    def ids(self, start: int, stop: int) -> NDArray[np.int64]:
        """(stop - start,) int64 ids that have the numbers ``start`` to ``stop``."""
        ...
