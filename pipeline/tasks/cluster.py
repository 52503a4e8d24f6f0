"""Runs tasks in this process, or on the cluster that :mod:`gnnloom.pipeline.cluster` opens.

Stages give a :class:`Cluster` a function and a list of small items, and get the results in order of completion. They do
not know where the tasks run. Large data goes through files.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Protocol, TypeVar

from gnnloom.pipeline.tasks.memory import keep_freed_memory
from gnnloom.storage.disk.work_folder import BESIDE, Scratch

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Bytes of memory per worker, by default.
DEFAULT_MEMORY = 1 << 30

#: Approximate time to start local workers, in seconds.
START_SECONDS = 2.0

#: Approximate share of their time that threads of one process wait for each other: one at a time runs Python code.
THREAD_LOSS = 0.1

#: Numbers that a stage works on faster in threads than in workers that have to be started first.
FEW_ENTRIES = 10_000_000


class Cluster(Protocol):
    """Runs tasks, ``workers`` at a time, each within ``memory`` bytes.

    Temporary files of the tasks go to the folder of ``scratch``, with the file sizes that it sets.
    """

    workers: int
    memory: int
    scratch: Scratch

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Apply ``function`` to every item; results come in order of completion.

        If a task raises, the iteration ends with its exception and tasks that have not started are canceled.
        ``function`` and the items must be picklable. A task may run twice, if a worker dies.
        """
        ...


class InProcessCluster:
    """No cluster: tasks run in this process, one after another; for debugging and for small graphs."""

    workers = 1

    def __init__(self, memory: int = DEFAULT_MEMORY, scratch: Scratch = BESIDE) -> None:
        self.memory, self.scratch = memory, scratch

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        for item in items:
            yield function(item)


class ThreadedCluster:
    """Threads of this process; for tasks that spend their time in kernels and system calls, which release the GIL."""

    def __init__(self, workers: int, memory: int, scratch: Scratch = BESIDE) -> None:
        self.workers = workers
        self.memory, self.scratch = memory, scratch

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        keep_freed_memory()
        pool, tasks = ThreadPoolExecutor(self.workers), _Interruptible()
        try:
            for finished in as_completed([pool.submit(tasks.run, function, item) for item in items]):
                yield finished.result()
        except Exception:
            raise
        # This includes Ctrl-C, and a caller that stops iterating: nobody waits for the tasks.
        except BaseException:
            tasks.interrupt()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


class _InterruptedTaskError(BaseException):
    """Ends a task in a thread, as Ctrl-C ends one in the main thread; ``except Exception`` lets it pass."""


class _Interruptible:
    """Tasks in threads that can be interrupted: each ends before its next instruction of Python."""

    def __init__(self) -> None:
        self._lock, self._running, self._stopped = threading.Lock(), set[int](), False

    def run(self, function: Callable[[Item], Result], item: Item) -> Result:
        """Run a task, in any thread."""
        me = threading.get_ident()
        with self._lock:
            if self._stopped:
                raise _InterruptedTaskError
            self._running.add(me)
        try:
            return function(item)
        finally:
            with self._lock:
                self._running.discard(me)

    def interrupt(self) -> None:
        """Interrupt the tasks that run, and begin no others."""
        with self._lock:
            self._stopped = True
            for thread in self._running:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread), ctypes.py_object(_InterruptedTaskError)
                )


class LazyCluster:
    """Local worker processes that start with the first tasks, because starting them takes a second or two."""

    def __init__(self, start: Callable[[], Cluster], memory: int, scratch: Scratch = BESIDE) -> None:
        self.workers = available_cores()
        self.memory, self.scratch = memory, scratch
        self._start = start
        self._started: Cluster | None = None

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        if not items:
            return iter(())
        if self._started is None:
            self._started = self._start()
        return self._started.map(function, items)

    def for_work(self, seconds: float) -> Cluster:
        """This cluster, or the same number of threads of this process if starting workers takes longer than they save.

        Args:
            seconds: time that a single worker would need.
        """
        # Workers that run already cost nothing more, and they do not wait for each other.
        if self._started is None and threads_suffice(self.workers, seconds):
            return ThreadedCluster(self.workers, self.memory, self.scratch)
        return self


def threads_suffice(workers: int, seconds: float) -> bool:
    """Whether threads finish before worker processes would, on work that takes a single worker ``seconds`` seconds."""
    return seconds / workers * THREAD_LOSS < START_SECONDS


def for_few(cluster: Cluster, entries: int) -> Cluster:
    """Cluster for work on ``entries`` numbers, such as nonzeros, as :func:`for_work`; threads only for few numbers.

    For stages that do not project their time. A million numbers take them well under a second.
    """
    return for_work(cluster, 0.0) if entries <= FEW_ENTRIES else cluster


def for_work(cluster: Cluster, seconds: float) -> Cluster:
    """Cluster for work that takes one worker ``seconds`` seconds: ``cluster``, or threads of this process.

    Threads are chosen only if the workers of ``cluster`` have not started and are not worth starting.
    """
    return cluster.for_work(seconds) if isinstance(cluster, LazyCluster) else cluster


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
