"""Runs a task on a worker of Dask that fails in one way, and prints gnnloom's error as the command does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.storage.errors import CorruptError, GnnloomError

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Task:
    """A task with a source large enough to be sent to each worker once."""

    folder: Path
    number: int
    source: tuple[str, ...]


def fail(task: Task) -> int:
    raise CorruptError(f"{task.folder}: damaged")


def be_killed(task: Task) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def lose_scheduler(task: Task) -> int:
    """End the scheduler while this task runs."""
    os.kill(int((task.folder / "pid").read_text()), signal.SIGKILL)
    time.sleep(60)
    return 0


@contextmanager
def scheduler(folder: Path) -> Iterator[ClusterOptions]:
    """A scheduler with one worker, in processes of their own, as a site provides them."""
    file, log = folder / "scheduler.json", (folder / "log").open("wb")
    address = ["--scheduler-file", str(file)]
    options = {
        "scheduler": ["--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0", *address],
        "worker": ["--no-dashboard", "--no-nanny", *address],
    }
    started = [
        subprocess.Popen([sys.executable, "-m", f"distributed.cli.dask_{name}", *each], stdout=log, stderr=log)
        for name, each in options.items()
    ]
    (folder / "pid").write_text(str(started[0].pid))
    try:
        while b"Starting established connection" not in (folder / "log").read_bytes():
            time.sleep(0.1)
        yield ClusterOptions("scheduler-file", address=str(file))
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextmanager
def local(folder: Path) -> Iterator[ClusterOptions]:
    yield ClusterOptions(workers=1)


WAYS = {"fail": (fail, local), "be killed": (be_killed, local), "lose scheduler": (lose_scheduler, scheduler)}

if __name__ == "__main__":
    task, place = WAYS[sys.argv[1]]
    here = Path(sys.argv[2])
    try:
        with place(here) as options, open_cluster(options) as cluster:
            source = tuple(f"file-{number}" for number in range(2000))
            list(cluster.map(task, [Task(here, number, source) for number in range(2)]))
    except GnnloomError as error:
        sys.stderr.write(f"error: {error}\n")
