"""Faults on purpose, for tests: one environment variable makes a named point of the program fail.

``GNNLOOM_FAULT`` holds plans, separated by ``;``, of the form ``POINT:ACTION[:nth=N][:rank=R]``. A point is named for
what is about to happen there (``manifest.write``, ``chunk.rename``, ``send.halo forward``), and may contain ``*``. The
action happens when the point is reached for the N-th time (by default the first) in a process, and on MPI rank R only
if that is given. Without the variable a point costs a function call.

The actions: ``raise`` an error that is a defect, ``memory`` (MemoryError), ``ENOSPC``, ``EIO``, ``EFBIG``, ``EROFS``
(OSError), ``short`` (half of the bytes are written, and the disk is full), ``slow`` (sleep for a second), ``SIGKILL``,
``SIGSTOP``, ``SIGTERM``, and ``drop``, which makes a message that is never sent.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import signal
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from gnnloom.storage.errors import InputError

VARIABLE: Final = "GNNLOOM_FAULT"
_ERRORS: Final = ("ENOSPC", "EIO", "EFBIG", "EROFS")
_SIGNALS: Final = ("SIGKILL", "SIGSTOP", "SIGTERM")
ACTIONS: Final = ("raise", "memory", *_ERRORS, "short", "slow", *_SIGNALS, "drop")
_SLOW_SECONDS: Final = 1.0


class InjectedError(RuntimeError):
    """The error of the action ``raise``: one that no code expects."""


@dataclass
class _Plan:
    pattern: str
    action: str
    nth: int
    rank: int | None
    reached: int = 0

    @classmethod
    def parse(cls, text: str) -> _Plan:
        point, _, rest = text.partition(":")
        action, *options = rest.split(":")
        values = dict(option.partition("=")[::2] for option in options)
        if action not in ACTIONS or values.keys() - {"nth", "rank"}:
            raise InputError(f"{VARIABLE}: {text!r}: expected POINT:ACTION[:nth=N][:rank=R] with {', '.join(ACTIONS)}")
        rank = int(values["rank"]) if "rank" in values else None
        return cls(point, action, int(values.get("nth", "1")), rank)

    def is_due(self, point: str) -> bool:
        if not fnmatch.fnmatchcase(point, self.pattern) or self.rank not in {None, _rank()}:
            return False
        self.reached += 1
        return self.reached == self.nth


@cache
def _plans() -> tuple[_Plan, ...]:
    """The plans of this process, read once."""
    return tuple(_Plan.parse(text) for text in os.environ.get(VARIABLE, "").split(";") if text)


def forget_plans() -> None:
    """Read the variable again at the next point; for tests that set it in their own process."""
    _plans.cache_clear()


def _rank() -> int:
    return int(os.environ.get("PMI_RANK") or os.environ.get("SLURM_PROCID") or 0)


def fault_point(point: str, path: Path | None = None) -> bool:
    """Announce that something is about to happen, and fail if a plan says so.

    Args:
        path: the file that is being written, for ``short``.

    Returns:
        True if the message that is about to be sent is to be dropped; other points ignore it.

    Raises:
        OSError, MemoryError, InjectedError: as planned.
    """
    plans = _plans()
    if not plans:
        return False
    drops = False
    # All plans, since each counts how often its point is reached.
    for plan in plans:
        drops |= plan.is_due(point) and _act(plan.action, point, path)
    return drops


def _act(action: str, point: str, path: Path | None) -> bool:
    if action == "raise":
        raise InjectedError(f"fault at {point}")
    if action == "memory":
        raise MemoryError(f"fault at {point}")
    if action in _SIGNALS:
        os.kill(os.getpid(), getattr(signal, action))
    if action == "slow":
        time.sleep(_SLOW_SECONDS)
    if action == "short":
        _cut(path)
    if action in {"short", *_ERRORS}:
        number = errno.ENOSPC if action == "short" else getattr(errno, action)
        raise OSError(number, os.strerror(number), str(path or point))
    return action == "drop"


def _cut(path: Path | None) -> None:
    """Leave half of a file that is being written; files with their final names are whole."""
    if path is not None and path.name.startswith(".") and path.is_file():
        os.truncate(path, path.stat().st_size // 2)
