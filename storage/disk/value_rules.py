"""Rules for the values of arrays that kernels use as positions without checking them again.

Values are checked in the pass that reads the array: by readers of stored chunks, and by the comparison of mapped copies
with their checksums. A checksum only shows that bytes have not changed since they were written.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.errors import CorruptError

#: Values that are compared at a time: few enough that the comparison stays in the cache.
_STEP: Final = 1 << 15


class Within(NamedTuple):
    """Integers or bool from ``low`` to ``stop - 1``."""

    low: int
    stop: int


class Ascending(NamedTuple):
    """Offsets that begin at 0, never fall, and end at ``total``."""

    total: int


Rule = Within | Ascending


class ValueCheck:
    """Checks an array against a rule, from consecutive pieces. A piece that breaks the rule raises CorruptError."""

    def __init__(self, where: str, rule: Rule | None, remedy: str = "") -> None:
        """Check nothing yet.

        Args:
            where: the array, for messages.
            rule: None allows all values.
            remedy: what to do about a wrong value, for the end of the message.
        """
        self._where, self._rule, self._remedy = where, rule, remedy and f"; {remedy}"
        self._count, self._last = 0, 0

    def add(self, values: NDArray[Any]) -> None:
        """Check the next values; (num_values, ...)."""
        if isinstance(self._rule, Within):
            wrong = first_outside(values, self._rule)
            if wrong is not None:
                raise self._error(
                    f"{values.reshape(-1)[wrong]} at position {self._count + wrong}, expected {self._rule.low} to"
                    f" {self._rule.stop - 1}"
                )
        elif self._rule is not None and len(values):
            if self._count == 0 and values[0] != 0:
                raise self._error(f"expected to begin at 0, found {values[:1].tolist()}")
            if values[0] < self._last:
                raise self._error(f"falls from {self._last} to {values[0]} after {self._count - 1}")
            fall = first_fall(values)
            if fall is not None:
                raise self._error(f"falls from {values[fall]} to {values[fall + 1]} after {self._count + fall}")
            self._last = int(values[-1])
        self._count += values.size

    def end(self) -> None:
        """Run the checks that need all values."""
        if not isinstance(self._rule, Ascending):
            return
        if self._count == 0:
            raise self._error("expected to begin at 0, found []")
        if self._last != self._rule.total:
            raise self._error(f"ends at {self._last}, expected {self._rule.total}")

    def _error(self, text: str) -> CorruptError:
        return CorruptError(f"{self._where}: {text}{self._remedy}")


def first_outside(values: NDArray[Any], rule: Within) -> int | None:
    """The flat position of the first value that is not within limits; None if all are.

    >>> first_outside(np.array([0, 3, 5, -1]), Within(0, 4))
    2
    """
    if values.size == 0:
        return None
    # One pass instead of two: read as unsigned, negative values are larger than any limit. bool may hold any byte.
    if rule.low == 0 and int(values.view(f"u{values.dtype.itemsize}").max()) < rule.stop:
        return None
    numbers = values.view(np.uint8) if values.dtype == np.bool_ else values
    wrong = ((numbers < rule.low) | (numbers >= rule.stop)).reshape(-1)
    return int(wrong.argmax()) if wrong.any() else None


def first_fall(values: NDArray[Any]) -> int | None:
    """The position of the first value that is followed by a smaller one; None if there is none.

    >>> first_fall(np.array([0, 2, 2, 1]))
    2
    """
    for start in range(0, len(values) - 1, _STEP):
        some = values[start : start + _STEP + 1]
        falls = some[1:] < some[:-1]
        if falls.any():
            return start + int(falls.argmax())
    return None
