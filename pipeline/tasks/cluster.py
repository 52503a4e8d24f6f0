"""Where tasks run: in this process, on local worker processes, or on a Dask cluster that is running already.

No other module knows which. Stages give a :class:`Cluster` a function and a list of small items, and get the results in
order of completion. Large data goes through files.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gnnloom.pipeline.tasks.certificate import make_certificate
from gnnloom.pipeline.tasks.dask_tasks import Prepared, prepare, run_task, sent_once
from gnnloom.pipeline.tasks.main_guard import check_main_guard
from gnnloom.pipeline.tasks.memory import BASE_MEMORY, KEPT_ALLOCATION, keep_freed_memory
from gnnloom.pipeline.tasks.performance import check_report, reported
from gnnloom.pipeline.tasks.quiet import dask_silenced, start_quiet_tracker
from gnnloom.storage.errors import CorruptError, InputError, LaunchError
from gnnloom.storage.format.files import read_json
from gnnloom.storage.machine_memory import memory_text
from gnnloom.storage.shared_memory import remove_abandoned

if TYPE_CHECKING:
    from distributed import Client, Future, SpecCluster, Worker
    from distributed.scheduler import WorkerState

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


#: Longest wait for tasks that run when another one fails, and seconds between looks. A task takes seconds.
_STOP_SECONDS, _STOP_POLL_SECONDS = 300.0, 0.05

#: Far more than the cores of any machine.
_MOST_WORKERS = 4096

#: Longest wait for workers that replace killed ones. Starting one takes a second or two.
_REPLACED_SECONDS = 20


class Cluster(Protocol):
    """Runs tasks, ``workers`` at a time, each within ``memory`` bytes.

    Temporary files of the tasks go to ``scratch``, or by default next to what they make.
    """

    workers: int
    memory: int
    scratch: Path | None

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Apply ``function`` to every item; results come in order of completion.

        If a task raises, the iteration ends with its exception and tasks that have not started are canceled.
        ``function`` and the items must be picklable. A task may run twice, if a worker dies.
        """
        ...


@dataclass(frozen=True)
class ClusterOptions:
    """Which cluster to open.

    Attributes:
        kind: ``local`` (processes on this machine), ``address`` (a running scheduler), ``scheduler-file`` (a running
            scheduler that left its address in a file), or ``mpi`` (the ranks of this job, which serve already; their
            cluster is closed at the end).
        workers: processes to start; 0 runs tasks in this process, one after another; None starts one per core when
            they are first needed.
        memory: bytes that one worker may use.
        address: address of the scheduler, such as ``tcp://host:8786``, or its file.
        performance_report: HTML file for Dask's report of what the workers did; None for no report.
        scratch: folder for temporary files, which all workers must see; None to put them next to what they are for.
    """

    kind: str = "local"
    workers: int | None = None
    memory: int = DEFAULT_MEMORY
    address: str | None = None
    performance_report: Path | None = None
    scratch: Path | None = None


class InProcessCluster:
    """No cluster: tasks run in this process, one after another; for debugging and for small graphs."""

    workers = 1

    def __init__(self, memory: int = DEFAULT_MEMORY, scratch: Path | None = None) -> None:
        self.memory, self.scratch = memory, scratch

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        for item in items:
            yield function(item)


class ThreadedCluster:
    """Threads of this process; for tasks that spend their time in kernels and system calls, which release the GIL."""

    def __init__(self, workers: int, memory: int, scratch: Path | None = None) -> None:
        self.workers = workers
        self.memory, self.scratch = memory, scratch

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        keep_freed_memory()
        pool = ThreadPoolExecutor(self.workers)
        try:
            for finished in as_completed([pool.submit(function, item) for item in items]):
                yield finished.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


class _LostClusterError(LaunchError):
    """The scheduler is gone, and nobody knows the state of its tasks."""

    def __init__(self) -> None:
        super().__init__(
            "the connection to the Dask scheduler was lost: start it again if it has ended, and run the command again;"
            " finished tasks are kept"
        )


class DaskCluster:
    """Tasks on the workers of a Dask client."""

    def __init__(self, client: Client, workers: int, memory: int, scratch: Path | None = None) -> None:
        self._client = client
        self.workers = workers
        self.memory, self.scratch = memory, scratch

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        prepared = prepare(function, items)
        with sent_once(self._client, prepared):
            yield from self._run(function, prepared)

    def _run(self, function: Callable[[Item], Result], prepared: Prepared) -> Iterator[Result]:
        from distributed import KilledWorker  # noqa: PLC0415 - takes a second to import

        futures = self._client.map(
            run_task, prepared.items, function=function, key=prepared.keys, pure=False, batch_size=1000
        )
        try:
            yield from _completed(futures)
        except KilledWorker as error:
            self._stop(futures)
            raise self._killed(error.last_worker) from error
        except _LostClusterError:
            # The scheduler is gone, so the tasks cannot be canceled.
            raise
        # What is running writes into folders that the caller is about to remove.
        except Exception:
            self._stop(futures)
            raise
        # This includes a caller that stops iterating: tasks that nobody waits for must not go on writing.
        except BaseException:
            self._client.cancel(futures)
            raise

    def _killed(self, last: WorkerState) -> LaunchError:
        """The error if workers were killed, by their nannies or by others; ``last`` is the last of them."""
        from gnnloom.pipeline.tasks.guarded_nanny import ended_workers  # noqa: PLC0415 - imports Dask

        held = 0
        # A scheduler that is gone cannot say which workers were ended.
        with suppress(OSError, TimeoutError):
            held = ended_workers(self._client).get((last.nanny, last.pid), 0)
        if held:
            return LaunchError(
                f"a task took {memory_text(held)}, far more than a worker may use (--memory,"
                f" {memory_text(self.memory)}), and the machine or the job ran out of memory, so the worker was ended,"
                " several times in a row: use fewer --workers, or a machine with more memory; finished tasks are kept"
            )
        return LaunchError(
            "several worker processes in a row were killed at the same task, most often because memory ran out:"
            " lower --memory (what each may use) or --workers (how many there are), and run the command again;"
            " finished tasks are kept"
        )

    def _stop(self, futures: Sequence[Future[Result]]) -> None:
        """Cancel all tasks, and wait for those that are running: a thread in a worker cannot be stopped."""
        self._client.cancel(futures)
        deadline = time.monotonic() + _STOP_SECONDS
        # Workers that are gone, or whose scheduler is, run nothing.
        with suppress(OSError, TimeoutError, ValueError):
            while any(self._client.run(_running).values()) and time.monotonic() < deadline:
                time.sleep(_STOP_POLL_SECONDS)


def _running(dask_worker: Worker) -> int:
    """Number of tasks that a worker is running, canceled ones included; the argument's name asks Dask for it."""
    return len(dask_worker.state.executing)


def _completed(futures: Sequence[Future[Result]]) -> Iterator[Result]:
    """Yield results in order of completion."""
    from distributed import as_completed as dask_completed  # noqa: PLC0415 - takes a second to import

    for future, result in dask_completed(futures, with_results=True):
        # Dask returns the error that belongs to this state instead of raising it.
        if future.cancelled():
            raise _LostClusterError
        yield result


class LazyCluster:
    """Local worker processes that start with the first tasks, because starting them takes a second or two."""

    def __init__(self, options: ClusterOptions, stack: ExitStack) -> None:
        self.workers = options.workers or available_cores()
        self.memory, self.scratch = options.memory, options.scratch
        self._options, self._stack = options, stack
        self._started: Cluster | None = None

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        if not items:
            return iter(())
        if self._started is None:
            self._started = self._stack.enter_context(_start_local(self._options))
        return self._started.map(function, items)

    def for_work(self, seconds: float) -> Cluster:
        """This cluster, or as many threads of this process if starting workers costs more than they save.

        Args:
            seconds: time that a single worker would need.
        """
        # Workers that run already cost nothing more, and they do not wait for each other.
        if self._started is None and threads_suffice(self.workers, seconds):
            return ThreadedCluster(self.workers, self.memory, self.scratch)
        return self


def run_tasks(cluster: Cluster, function: Callable[[Item], object], items: Sequence[Item]) -> None:
    """Run tasks whose results are files, and wait until all have finished."""
    for _ in cluster.map(function, items):
        pass


def threads_suffice(workers: int, seconds: float) -> bool:
    """Whether threads finish before worker processes would, on work that takes a single worker so many seconds."""
    return seconds / workers * THREAD_LOSS < START_SECONDS


def for_few(cluster: Cluster, entries: int) -> Cluster:
    """Where to do work on so many numbers, such as nonzeros: as :func:`for_work`, with threads only for few numbers.

    For stages that do not project their time. A million numbers take them well under a second.
    """
    return for_work(cluster, 0.0) if entries <= FEW_ENTRIES else cluster


def for_work(cluster: Cluster, seconds: float) -> Cluster:
    """Where to do work that takes a single worker so many seconds: on ``cluster``, or on threads of this process.

    Threads are chosen only if the workers of ``cluster`` have not started and are not worth starting.
    """
    return cluster.for_work(seconds) if isinstance(cluster, LazyCluster) else cluster


@contextmanager
def open_cluster(options: ClusterOptions) -> Iterator[Cluster]:
    """Open the cluster that ``options`` describe, and close it at the end.

    Raises:
        InputError: the options contradict each other, or no scheduler answers at the address.
        MissingPackageError: the performance report needs a package that is not installed.
    """
    check_report(options.performance_report, options.workers)
    if options.workers is not None and options.workers > _MOST_WORKERS:
        raise InputError(f"workers {options.workers}: expected at most {_MOST_WORKERS}, on one machine")
    with _open(options) as cluster, reported(options.performance_report):
        yield cluster


@contextmanager
def _open(options: ClusterOptions) -> Iterator[Cluster]:
    if options.kind in {"address", "scheduler-file"}:
        with _connect(options) as cluster:
            yield cluster
    elif options.kind == "mpi":
        with _on_ranks(options) as cluster:
            yield cluster
    elif options.kind != "local":
        raise InputError(f"cluster {options.kind!r}: expected 'local', 'address', 'scheduler-file' or 'mpi'")
    elif options.workers == 0:
        yield InProcessCluster(options.memory, options.scratch)
    elif options.workers is None and options.performance_report is None:
        with ExitStack() as stack:
            yield LazyCluster(options, stack)
    else:
        with _start_local(options) as cluster:
            yield cluster


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def _start_local(options: ClusterOptions) -> Iterator[Cluster]:
    import dask  # noqa: PLC0415 - takes a second to import
    from distributed import Client  # noqa: PLC0415

    check_main_guard()
    # Semaphores of workers that were killed together with their client.
    remove_abandoned()
    start_quiet_tracker()
    workers = options.workers or available_cores()
    with (
        dask_silenced(),
        # Other users of this machine could give work to workers without a certificate.
        dask.config.set(worker_settings() | make_certificate().settings()),
        _started(workers, options.memory) as local,
        Client(local) as client,
        _until_replaced(client, workers),
    ):
        yield DaskCluster(client, workers, options.memory, options.scratch)


@contextmanager
def _started(workers: int, memory: int) -> Iterator[SpecCluster]:
    """A scheduler and workers on the loopback interface.

    Raises:
        LaunchError: a worker was killed, or ended with an error, before it was ready.
    """
    from distributed import Security, SpecCluster  # noqa: PLC0415 - takes a second to import

    from gnnloom.pipeline.tasks.guarded_nanny import Guard, GuardedNanny, PagelessScheduler  # noqa: PLC0415

    place = {"host": "127.0.0.1", "protocol": "tls", "security": Security()}
    worker = {"nthreads": 1, "silence_logs": logging.CRITICAL, "guard": Guard.of(memory)}
    try:
        local = SpecCluster(
            workers={number: {"cls": GuardedNanny, "options": place | worker} for number in range(workers)},
            scheduler={"cls": PagelessScheduler, "options": {**place, "port": 0, "dashboard": False}},
            security=place["security"],
            silence_logs=logging.CRITICAL,
        )
    except RuntimeError as error:
        raise LaunchError(
            "the worker processes could not be started: one was killed or failed while it started. Check the memory and"
            " the space in /dev/shm and the temporary folder (`gnnloom doctor`), lower --workers, or run without worker"
            " processes (--workers 0)"
        ) from error
    with local:
        yield local


@contextmanager
def _until_replaced(client: Client, workers: int) -> Iterator[None]:
    """After an error because workers were killed, wait until there are ``workers`` again.

    A worker that is closed while it starts prints a traceback.
    """
    try:
        yield
    except LaunchError as error:
        if not isinstance(error, _LostClusterError):
            with suppress(OSError, TimeoutError):
                client.wait_for_workers(workers, timeout=_REPLACED_SECONDS)
        raise


def worker_settings() -> dict[str, Any]:
    """Dask's settings: every worker has one thread, and the stages keep to their memory budget themselves."""
    environment = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    # A worker keeps what one task freed for the next, whose buffers have similar sizes: touching fresh pages is slow.
    # One arena only, because glibc's per-thread arenas cannot serve blocks of more than 64 MiB.
    keep = str(KEPT_ALLOCATION)
    environment |= {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": keep, "MALLOC_TRIM_THRESHOLD_": keep}
    environment |= {"NUMBA_NUM_THREADS": "1"}
    return {
        "distributed.nanny.pre-spawn-environ": environment,
        "distributed.worker.preload": ["gnnloom.pipeline.tasks.worker_preload"],
        "distributed.worker.multiprocessing-method": "spawn",
        # Where a worker has a limit, Dask spills results and pauses the worker well below it. Results are a few
        # numbers, and pages of mapped files count as the worker's own: only the limit itself ends a worker.
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.comm.timeouts.connect": "60s",
        "distributed.scheduler.allowed-failures": 3,
    }


@contextmanager
def _connect(options: ClusterOptions) -> Iterator[Cluster]:
    address = _scheduler_address(options)
    with dask_silenced(), _client(options, address) as client:
        threads = client.nthreads().values()
        if not threads:
            raise InputError(f"{options.address}: the scheduler has no workers")
        yield DaskCluster(client, sum(threads), memory_per_thread(options.memory, max(threads)), options.scratch)


def memory_per_thread(memory: int, threads: int) -> int:
    """Bytes for a task of a worker with several threads: they share the memory, and hold the libraries once."""
    return BASE_MEMORY + (memory - BASE_MEMORY) // threads


def _client(options: ClusterOptions, address: str) -> Client:
    from distributed import Client  # noqa: PLC0415 - takes a second to import

    try:
        _check_answers(address)
        return Client(address, timeout="30s")
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(f"{options.address}: no Dask scheduler answers there ({error})") from error


def _check_answers(address: str) -> None:
    """Connect once: a client that fails to connect leaves threads behind, for which the next may wait forever."""
    from distributed.comm.addressing import get_address_host_port, parse_address  # noqa: PLC0415

    if parse_address(address)[0] in {"tcp", "tls"}:
        socket.create_connection(get_address_host_port(address), timeout=30).close()


def _scheduler_address(options: ClusterOptions) -> str:
    if not options.address:
        raise InputError(f"cluster {options.kind!r}: expected an address, such as tcp://host:8786, or a scheduler file")
    if options.kind == "address":
        return options.address
    try:
        address = read_json(Path(options.address), sealed=False).get("address")
    except (CorruptError, OSError) as error:
        raise InputError(f"{options.address}: not the file of a Dask scheduler ({error})") from error
    if not isinstance(address, str):
        raise InputError(f"{options.address}: not the file of a Dask scheduler (it has no address)")
    return address


@contextmanager
def _on_ranks(options: ClusterOptions) -> Iterator[Cluster]:
    from distributed import Client  # noqa: PLC0415 - takes a second to import

    workers = options.workers or 1
    with Client(timeout="60s") as client:
        try:
            client.wait_for_workers(workers, timeout=120)
            with _until_replaced(client, workers):
                yield DaskCluster(client, workers, options.memory, options.scratch)
        finally:
            client.shutdown()  # otherwise the other ranks would serve forever
