"""Dask's processes as gnnloom runs them: without pages for browsers, and with a limit of memory for workers.

The nanny ends its worker before a task that needs far too much memory takes the whole machine down, and if the worker
has been stopped for a minute.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Client, Nanny, Scheduler, Worker, WorkerPlugin
from distributed.core import Status
from distributed.system import MEMORY_LIMIT
from tornado.ioloop import PeriodicCallback

from gnnloom.pipeline.tasks.memory import BASE_MEMORY, MIB
from gnnloom.storage.machine_memory import available_memory

#: Milliseconds between two looks. A process takes a few hundred megabytes of new pages meanwhile, at the most.
_LOOK_MILLISECONDS = 100

#: Most seconds between two looks that count as such.
_MOST_PASSED = 1.0

#: Share of the machine, and bytes, that have to be left. With less, the machine begins to swap or to kill processes.
_RESERVED_SHARE, _LEAST_RESERVED = 0.03, 256 * MIB


#: Topic of the scheduler's events under which nannies report the workers that they end.
_TOPIC = "gnnloom-ended"

#: Number of attempts to start a worker that is killed while it starts.
_STARTS = 3

#: Most seconds to report a worker before it is ended.
_REPORT_SECONDS = 2.0


@dataclass(frozen=True)
class Guard:
    """Limits beyond which a nanny ends its worker.

    Attributes:
        most_memory: bytes of its own that a worker may hold in any case.
        share: bytes that a worker may not exceed even if the machine has more, because its job may not use them.
        stopped: seconds that a worker's process may be stopped (SIGSTOP), after which its tasks run elsewhere.
    """

    most_memory: int
    share: int = sys.maxsize
    stopped: float = 60.0

    @classmethod
    def of(cls, memory: int, share: int = sys.maxsize) -> Guard:
        """The guard of workers whose tasks may use ``memory`` bytes.

        No task that keeps to its budget reaches twice the sum of the budget and the memory of an idle process.
        """
        return cls(2 * memory + BASE_MEMORY, share)

    def ends(self, held: int) -> bool:
        """Whether to end a worker that holds ``held`` bytes."""
        reserved = max(_LEAST_RESERVED, int(_RESERVED_SHARE * MEMORY_LIMIT))
        return held > self.share or (held > self.most_memory and available_memory() < reserved)


def own_memory(pid: int, root: Path = Path("/")) -> int:
    """Bytes of memory and swap space that only this process holds; 0 if it has ended.

    Pages of mapped files do not count: the kernel drops them when memory runs out, and processes share them.
    """
    try:
        lines = (root / "proc" / str(pid) / "status").read_text().splitlines()
    except OSError:
        return 0
    fields = dict(line.split(":", 1) for line in lines)
    return sum(1024 * int(fields[name].split()[0]) for name in ("RssAnon", "VmSwap") if name in fields)


def is_stopped(pid: int, root: Path = Path("/")) -> bool:
    """Whether a process is stopped by a signal; False while a debugger holds it, and if it has ended."""
    try:
        # The name of the program, in parentheses, may contain anything.
        return (root / "proc" / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


class CommonFields(WorkerPlugin):
    """Holds the common fields of all tasks of a phase on a worker; tasks find them by the plugin's name.

    Attributes:
        values: values by field.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values


class PagelessScheduler(Scheduler):
    """A scheduler without a web server, which would show its state to anyone who can connect."""

    def start_http_server(self, *args: Any, **options: Any) -> None:
        """Start nothing. Dask has no setting for that: without a dashboard it still serves other pages."""


class PagelessWorker(Worker):
    """A worker without a web server; see :class:`PagelessScheduler`."""

    def start_http_server(self, *args: Any, **options: Any) -> None:
        """Start nothing."""


class GuardedNanny(Nanny):
    """Kills its worker if this holds far more than its budget while the machine runs out of memory, or is stopped.

    Both conditions on memory are needed. Dask's own limit also counts mapped files, so it would end workers that read a
    mapped graph. And some tasks exceed any small budget: a row block is cut whole, which does no harm as long as the
    machine has enough of it. In a batch job, the job's memory is the machine's.
    """

    def __init__(self, *args: Any, guard: Guard, **options: Any) -> None:
        # No limit of Dask's, which counts mapped files.
        super().__init__(*args, **{**options, "memory_limit": 0, "worker_class": PagelessWorker})
        # A terminal sends Ctrl-C to the worker as well. It inherits from this thread that it ignores the signal, even
        # while it starts. The main thread belongs to a rank, which goes on without the cluster.
        if threading.current_thread() is not threading.main_thread():
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self._guard = guard
        self._looked, self._stopped = time.monotonic(), 0.0
        self.periodic_callbacks["gnnloom-guard"] = PeriodicCallback(self._look, _LOOK_MILLISECONDS)

    async def instantiate(self) -> Any:
        """Start the worker, and look after it while it starts, so that one that is stopped then is not waited for.

        A worker that is killed while it starts is started again, as Dask's nanny does only with one that has started.
        """
        if not (guard := self.periodic_callbacks["gnnloom-guard"]).is_running():
            guard.start()
        for _ in range(_STARTS - 1):
            status = await super().instantiate()
            if status == Status.running or self.status in {Status.closing, Status.closed}:
                return status
        return await super().instantiate()

    def close_gracefully(self, *args: Any, **options: Any) -> None:
        """Let a worker that the scheduler closes end at once.

        A closing worker waits up to two seconds for this message, which Dask's nanny sends only if the nanny itself
        ends the worker. In an MPI job, all other ranks would wait with it.
        """
        super().close_gracefully(*args, **options)
        # None if the worker has ended.
        queue = getattr(self.process, "child_stop_q", None)
        if queue is not None:
            # Closed if the nanny is ending the worker.
            with suppress(ValueError):
                queue.put({"op": "stop"})

    def end_now(self) -> None:
        """Kill the worker, and start no other one; any thread may call this."""
        self.auto_restart = False
        process = self._process_of_worker()
        if process is not None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)

    def _process_of_worker(self) -> Any:
        """The worker's process; None if there is none."""
        process = self.process.process if self.process is not None else None
        return None if process is None or process.pid is None else process

    def _has_stopped(self, pid: int) -> bool:
        """Whether the worker has been stopped for so long that it is given up."""
        # The time since the last look does not count as a whole: this process may have been stopped, too.
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, _MOST_PASSED), now
        self._stopped = self._stopped + passed if is_stopped(pid) else 0.0
        return self._stopped > self._guard.stopped

    async def _look(self) -> None:
        process = self._process_of_worker()
        if process is None:
            return
        if self._has_stopped(process.pid):
            # Killed before its tasks run elsewhere: were it continued, two workers would write the same files.
            process.kill()
            return
        held = own_memory(process.pid)
        if self._guard.ends(held):
            # First, because the scheduler may give up on the task as soon as the worker is gone.
            with suppress(OSError):
                # By its process: a worker gets tasks before its nanny knows its address.
                event = {"nanny": self.address, "pid": process.pid, "held": held}
                await asyncio.wait_for(self.scheduler.log_event(topic=_TOPIC, msg=event), _REPORT_SECONDS)
            process.kill()


def ended_workers(client: Client) -> dict[tuple[str | None, int], int]:
    """Bytes that each worker held that its nanny ended, by the nanny's address and the worker's process."""
    return {(event["nanny"], event["pid"]): event["held"] for _, event in client.get_events(_TOPIC)}
