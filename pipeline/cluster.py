"""Where tasks run: in this process, on local worker processes, or on a Dask cluster that is there already.

The only module that knows which.  Stages hand a :class:`Cluster` a function and a list of small
items and get the results in order of completion; what is big goes through files.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gnnloom.storage.errors import InputError

if TYPE_CHECKING:
    from distributed import Client

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Memory of one worker unless told otherwise, in bytes.
DEFAULT_MEMORY = 1 << 30


class Cluster(Protocol):
    """Runs tasks; ``workers`` at a time, each within ``memory`` bytes."""

    workers: int
    memory: int

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Apply ``function`` to every item; results come as they finish, in no certain order.

        A task that raises ends the iteration with its exception; tasks not begun are cancelled.
        ``function`` and the items must be picklable, and a task may run twice (when a worker dies).
        """
        ...


@dataclass(frozen=True)
class ClusterOptions:
    """What to open.

    Attributes:
        kind: ``local`` (processes on this machine) or ``address`` (a running scheduler).
        workers: processes to start; 0 runs tasks in this process, one after the other. None: one per core.
        memory: bytes that one worker may use.
        address: of the scheduler, such as ``tcp://host:8786``.
    """

    kind: str = "local"
    workers: int | None = None
    memory: int = DEFAULT_MEMORY
    address: str | None = None


class InProcessCluster:
    """No cluster: tasks run here, one after the other; for debugging and for small graphs."""

    workers = 1

    def __init__(self, memory: int = DEFAULT_MEMORY) -> None:
        self.memory = memory

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        for item in items:
            yield function(item)


class DaskCluster:
    """Tasks on the workers of a Dask client."""

    def __init__(self, client: Client, workers: int, memory: int) -> None:
        self._client = client
        self.workers = workers
        self.memory = memory

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        from distributed import as_completed  # noqa: PLC0415 - takes a second to import

        futures = self._client.map(function, items, pure=False, batch_size=1000)
        try:
            for _, result in as_completed(futures, with_results=True):
                yield result
        except BaseException:
            self._client.cancel(futures)
            raise


@contextmanager
def open_cluster(options: ClusterOptions) -> Iterator[Cluster]:
    """Open what ``options`` describe and close it at the end.

    Raises:
        InputError: the options make no sense together, or no scheduler answers at the address.
    """
    if options.kind == "address":
        with _connect(options) as cluster:
            yield cluster
    elif options.kind != "local":
        raise InputError(f"cluster {options.kind!r}: expected 'local' or 'address'")
    elif options.workers == 0:
        yield InProcessCluster(options.memory)
    else:
        with _start_local(options) as cluster:
            yield cluster


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def _start_local(options: ClusterOptions) -> Iterator[Cluster]:
    import dask  # noqa: PLC0415 - takes a second to import
    from distributed import Client, LocalCluster  # noqa: PLC0415

    workers = options.workers or available_cores()
    with (
        dask.config.set(_worker_settings()),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",  # None would take the fixed port 8787, and warn where it is taken
            memory_limit=0,
            silence_logs=logging.ERROR,
        ) as local,
        Client(local) as client,
    ):
        yield DaskCluster(client, workers, options.memory)


def _worker_settings() -> dict[str, Any]:
    """Every worker is one thread; freed memory goes back to the system; stages keep their own memory budget."""
    environment = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    environment |= {"MALLOC_TRIM_THRESHOLD_": "65536", "NUMBA_NUM_THREADS": "1"}
    return {
        "distributed.nanny.pre-spawn-environ": environment,
        "distributed.worker.multiprocessing-method": "spawn",
        "distributed.comm.timeouts.connect": "60s",
        "distributed.scheduler.allowed-failures": 3,
    }


@contextmanager
def _connect(options: ClusterOptions) -> Iterator[Cluster]:
    from distributed import Client  # noqa: PLC0415 - takes a second to import

    if not options.address:
        raise InputError("cluster 'address': give the address of the scheduler, such as tcp://host:8786")
    try:
        client = Client(options.address, timeout="30s")
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(f"{options.address}: no Dask scheduler answers there ({error})") from error
    with client:
        workers = len(client.scheduler_info()["workers"])
        if not workers:
            raise InputError(f"{options.address}: the scheduler has no workers")
        yield DaskCluster(client, workers, options.memory)
