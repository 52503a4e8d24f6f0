"""Measures processes, those of a command or this one: processor time, and memory with and without mapped files."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Seconds between two measurements.
INTERVAL = 0.05
#: Bytes of a page, in which /proc/PID/statm counts.
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass
class Process:
    """What a process used.

    Attributes:
        processor: seconds of its threads, until it was last seen.
        resident, private: bytes of memory at the peak; pages of mapped files are resident and not private.
        at_work: numbers of the looks at which a thread computed, waited for a core, or waited for the disk.
    """

    processor: float = 0.0
    resident: int = 0
    private: int = 0
    at_work: set[int] = field(default_factory=set)

    def update(self, pid: int, look: int) -> int:
        """Look at the process once more; returns its resident bytes, 0 if it has ended."""
        try:
            status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
            threads = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
        except (OSError, ValueError):
            return 0
        self.processor = max(self.processor, (int(status[11]) + int(status[12])) / _TICK)
        self.resident = max(self.resident, resident * _PAGE)
        self.private = max(self.private, (resident - shared) * _PAGE)
        if any(thread.rpartition(")")[2].split()[0] in "RD" for thread in threads):
            self.at_work.add(look)
        return resident * _PAGE


@dataclass(frozen=True)
class Watched:
    """What the processes of a command used.

    Attributes:
        wall: seconds of wall time.
        processor: seconds of all processes, as the system counted them.
        client: the process that was started.
        others: its descendants, those with the most processor time first.
        together: resident bytes of all of them at one moment, at the peak.
        output: its standard output.
    """

    wall: float
    processor: float
    client: Process
    others: tuple[Process, ...]
    together: int
    output: str

    @property
    def largest(self) -> int:
        """Resident bytes of the largest process."""
        return max(process.resident for process in (self.client, *self.others))

    def busy(self, workers: int) -> float:
        """Share of the time, from the first to the last work of so many descendants, in which all work."""
        looks = [process.at_work for process in self.others[:workers]]
        either = set.union(*looks)
        return len(set.intersection(*looks)) / (max(either) - min(either) + 1)


class Killed(SystemExit):
    """A command was killed."""


def watch(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    enter: Callable[[], None] | None = None,
) -> Watched:
    """Run a command to its end.

    Args:
        command: program and arguments.
        environment: variables that are added to those of this process.
        enter: what the process calls before its program, such as to limit itself.

    Raises:
        Killed: the command was killed, as one is that needs more than the memory of its control group.
        SystemExit: the command failed; the message ends with its standard error.
    """
    found: dict[int, Process] = {}
    look = together = 0
    started, before = time.perf_counter(), os.times()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        given = {**os.environ, **(environment or {})}
        run: dict[str, Any] = {"stdout": output, "stderr": errors, "text": True, "env": given}
        # No benchmark has another thread here, for which a function before the program could wait.
        root = subprocess.Popen(command, preexec_fn=enter, **run)  # noqa: PLW1509
        while root.poll() is None:
            together = max(together, sum(found.setdefault(p, Process()).update(p, look) for p in _family(root.pid)))
            look += 1
            time.sleep(INTERVAL)
        wall, after = time.perf_counter() - started, os.times()
        output.seek(0)
        errors.seek(0)
        if root.returncode:
            kind = Killed if root.returncode == -signal.SIGKILL else SystemExit
            raise kind(f"{' '.join(command)}: exit {root.returncode}\n{errors.read()[-3000:]}")
        printed = output.read()
    client = found.pop(root.pid)
    others = sorted(found.values(), key=lambda process: -process.processor)
    return Watched(wall, sum(after[2:4]) - sum(before[2:4]), client, tuple(others), together, printed)


def _family(pid: int) -> list[int]:
    """Return a process and its descendants, as far as they still run."""
    found = [pid]
    for parent in found:
        try:
            for tasks in Path(f"/proc/{parent}/task").iterdir():
                found += [int(child) for child in (tasks / "children").read_text().split()]
        except OSError:
            continue
    return found


@contextmanager
def watched() -> Iterator[Process]:
    """Measure this process while a block runs."""
    process, done = Process(), threading.Event()

    def sample() -> None:
        look = 0
        while not done.wait(INTERVAL):
            process.update(os.getpid(), look)
            look += 1

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield process
    finally:
        done.set()
        thread.join()
