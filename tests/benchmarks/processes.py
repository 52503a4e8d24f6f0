"""Runs a command and measures each of its processes: processor time and memory, files and private."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from peak import PAGE, family

#: Seconds between two measurements.
INTERVAL = 0.1
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass
class Process:
    """What a process used.

    Attributes:
        processor: seconds of its threads, until it was last seen.
        resident, private: bytes of memory at the peak; pages of mapped files are resident and not private.
    """

    processor: float = 0.0
    resident: int = 0
    private: int = 0

    def update(self, pid: int) -> None:
        """Look at the process once more, if it still runs."""
        try:
            status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
        except (OSError, ValueError):
            return
        self.processor = max(self.processor, (int(status[11]) + int(status[12])) / _TICK)
        self.resident = max(self.resident, resident * PAGE)
        self.private = max(self.private, (resident - shared) * PAGE)


@dataclass(frozen=True)
class Watched:
    """What the processes of a command used.

    Attributes:
        wall: seconds of wall time.
        processor: seconds of all processes, as the system counted them.
        client: the process that was started.
        others: its descendants, those with the most processor time first.
        output: its standard output.
    """

    wall: float
    processor: float
    client: Process
    others: tuple[Process, ...]
    output: str

    def busy(self, workers: int) -> float:
        """Processor seconds of the busiest descendants, as a share of the time that they all existed."""
        return sum(process.processor for process in self.others[:workers]) / (workers * self.wall)


def watch(command: Sequence[str]) -> Watched:
    """Run a command to its end.

    Raises:
        SystemExit: the command failed; the message ends with its standard error.
    """
    found: dict[int, Process] = {}
    started, before = time.perf_counter(), os.times()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        root = subprocess.Popen(command, stdout=output, stderr=errors, text=True)
        while root.poll() is None:
            for pid in family(root.pid):
                found.setdefault(pid, Process()).update(pid)
            time.sleep(INTERVAL)
        wall, after = time.perf_counter() - started, os.times()
        output.seek(0), errors.seek(0)
        if root.returncode:
            raise SystemExit(f"{' '.join(command)}: exit {root.returncode}\n{errors.read()[-3000:]}")
        printed = output.read()
    client = found.pop(root.pid)
    others = sorted(found.values(), key=lambda process: -process.processor)
    return Watched(wall, sum(after[2:4]) - sum(before[2:4]), client, tuple(others), printed)
