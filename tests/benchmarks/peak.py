"""Runs a command and measures its wall and processor time, and the memory of all of its processes."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Bytes of a page, in which /proc/PID/statm counts.
PAGE = os.sysconf("SC_PAGE_SIZE")

#: Seconds between two measurements of the memory.
INTERVAL = 0.02


@dataclass(frozen=True)
class Measured:
    """Measurements of a command.

    Attributes:
        wall: seconds of wall time.
        processor: seconds of processor time of all processes.
        peak_process: bytes of its largest process.
        peak_total: bytes of all of its processes at one moment.
        output: its standard output.
    """

    wall: float
    processor: float
    peak_process: int
    peak_total: int
    output: str


def run(command: Sequence[str], environment: Mapping[str, str]) -> Measured:
    """Run a command to its end.

    Args:
        command: program and arguments.
        environment: variables that are added to those of this process.

    Raises:
        RuntimeError: the command failed; the message ends with its standard error.
    """
    started, before = time.perf_counter(), os.times()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    watch = _Watch(process.pid)
    output, errors = process.communicate()
    watch.stop()
    wall, after = time.perf_counter() - started, os.times()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit {process.returncode}\n{errors[-3000:]}")
    processor = sum(after[2:4]) - sum(before[2:4])
    return Measured(wall, processor, watch.largest, watch.total, output)


class _Watch(threading.Thread):
    """Measures the resident memory of a process and its descendants until it is stopped."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._done = pid, threading.Event()
        self.largest = self.total = 0
        self.start()

    def run(self) -> None:
        while not self._done.wait(INTERVAL):
            sizes = [_resident(pid) for pid in family(self._pid)]
            self.largest = max(self.largest, *sizes, 0)
            self.total = max(self.total, sum(sizes))

    def stop(self) -> None:
        self._done.set()
        self.join()


def family(pid: int) -> list[int]:
    """Return a process and its descendants, as far as they still run."""
    found = [pid]
    for parent in found:
        try:
            for tasks in Path(f"/proc/{parent}/task").iterdir():
                found += [int(child) for child in (tasks / "children").read_text().split()]
        except OSError:
            continue
    return found


def _resident(pid: int) -> int:
    """Resident bytes of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0
