"""When work that could go on for longer has to end with what it has."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Deadline:
    """A moment on the monotonic clock; None for never."""

    moment: float | None = None

    @classmethod
    def after(cls, seconds: float | None) -> Self:
        """So many seconds from now; None for never."""
        return cls(None if seconds is None else time.monotonic() + seconds)

    @property
    def is_over(self) -> bool:
        return self.moment is not None and time.monotonic() >= self.moment


NO_DEADLINE = Deadline()
