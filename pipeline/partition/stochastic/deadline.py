"""A deadline for work that can stop at any time with the best result so far."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Deadline:
    """A moment in seconds of the monotonic clock; None for never."""

    moment: float | None = None

    @classmethod
    def after(cls, seconds: float | None) -> Self:
        """Return the deadline this many seconds from now; None for never."""
        return cls(None if seconds is None else time.monotonic() + seconds)

    @property
    def is_over(self) -> bool:
        """Whether the moment has come."""
        return self.moment is not None and time.monotonic() >= self.moment


NO_DEADLINE = Deadline()
