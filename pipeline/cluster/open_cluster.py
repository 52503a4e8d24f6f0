"""Opens the cluster that a user chose: this process, local worker processes, a running Dask cluster, or MPI ranks."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnloom.pipeline.cluster.certificate import make_certificate
from gnnloom.pipeline.cluster.dask_cluster import DaskCluster, LostClusterError
from gnnloom.pipeline.cluster.quiet import SAFE_PATH, dask_silenced, environment, start_quiet_tracker
from gnnloom.pipeline.cluster.silence import silence_named
from gnnloom.pipeline.cluster.steady_clock import steady_clock
from gnnloom.pipeline.tasks.cluster import DEFAULT_MEMORY, Cluster, InProcessCluster, LazyCluster, available_cores
from gnnloom.pipeline.tasks.memory import BASE_MEMORY, KEPT_ALLOCATION
from gnnloom.storage.disk.files import read_json
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.errors import CorruptError, InputError, LaunchError, MissingPackageError
from gnnloom.storage.option import Group, option
from gnnloom.storage.shared_memory import remove_abandoned
from gnnloom.storage.system_errors import OF_LIMITS, OF_PERMISSION, check_is_of_content

if TYPE_CHECKING:
    from distributed import Client, SpecCluster

#: Dask's setting for the environment in which a nanny starts its worker. The nanny leaves it in its own process.
WORKER_ENVIRONMENT = "distributed.nanny.pre-spawn-environ"

#: Likely cause if workers are killed as often as they are started, and first remedies.
NOT_STARTED = (
    "the worker processes could not be started: one was killed or failed while it started. Check the memory and the"
    " space in /dev/shm and the temporary folder (`gnnloom doctor`)"
)
#: Far more than the cores of any machine.
_MOST_WORKERS = 4096

#: Longest wait for workers that replace killed ones. Starting one takes a second or two.
_REPLACED_SECONDS = 20

_option = partial(option, group=Group.EXECUTION)


@dataclass(frozen=True)
class ClusterOptions:
    """Choice of the cluster to open.

    Attributes:
        kind: ``local`` (processes on this machine), ``address`` (a running scheduler), ``scheduler-file`` (a running
            scheduler that left its address in a file), or ``mpi`` (the ranks of this job, which serve already; their
            cluster is closed at the end).
        workers: processes to start; 0 runs tasks in this process, one after another; None starts one per core when
            they are first needed.
        memory: bytes that one worker may use.
        address: address of the scheduler, such as ``tcp://host:8786``, or its file.
        performance_report: HTML file for Dask's report on the workers; None for no report.
        scratch: folder for temporary files, which all workers must see; None to put them next to their artifact.
    """

    kind: str = "local"
    workers: int | None = _option(
        None,
        "Number of worker processes; 0 runs everything in this process.",
        kind=int,
        least=0,
        default_text="one per core",
    )
    memory: int = _option(DEFAULT_MEMORY, "Memory per worker process.", is_size=True)
    address: str | None = _option(
        None, "Dask scheduler to use, such as tcp://host:8786.", metavar="ADDRESS", flag_name="scheduler"
    )
    performance_report: Path | None = _option(  # noqa: RUF009 - an option is immutable
        None,
        "Write Dask's performance report on its workers to this file.",
        kind=Path,
        metavar="FILE.html",
    )
    scratch: Path | None = _option(  # noqa: RUF009 - an option is immutable
        None,
        "Folder for temporary files, which all workers must share.",
        kind=Path,
        metavar="DIRECTORY",
        default_text="in the dataset",
        variable="GNNLOOM_SCRATCH",
    )

    @property
    def tasks_at_once(self) -> int:
        """Tasks that run at a time on processes of this machine."""
        return available_cores() if self.workers is None else max(1, self.workers)


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


def _open(options: ClusterOptions) -> AbstractContextManager[Cluster]:
    if options.kind in {"address", "scheduler-file"}:
        return _connect(options)
    if options.kind == "mpi":
        return _on_ranks(options)
    if options.kind != "local":
        raise InputError(f"cluster {options.kind!r}: expected 'local', 'address', 'scheduler-file' or 'mpi'")
    if options.workers == 0:
        return nullcontext(InProcessCluster(options.memory, Scratch(options.scratch)))
    if options.workers is None and options.performance_report is None:
        return _started_when_needed(options)
    return _start_local(options)


@contextmanager
def _started_when_needed(options: ClusterOptions) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield LazyCluster(lambda: stack.enter_context(_start_local(options)), options.memory, Scratch(options.scratch))


@contextmanager
def _start_local(options: ClusterOptions) -> Iterator[Cluster]:
    import dask  # noqa: PLC0415 - takes a second to import
    from distributed import Client  # noqa: PLC0415

    # Semaphores of workers that were killed together with their client.
    remove_abandoned()
    start_quiet_tracker()
    workers = options.workers or available_cores()
    settings = worker_settings()
    with (
        dask_silenced(),
        steady_clock(),
        script_left_alone(),
        # Processes that a script starts later must find the environment of the script.
        environment(settings[WORKER_ENVIRONMENT]),
        # Other users of this machine could give work to workers without a certificate.
        dask.config.set(settings | make_certificate().settings()),
        _started(workers, options.memory) as local,
        Client(local) as client,
        silence_named(client),
        _until_replaced(client, workers),
    ):
        yield DaskCluster(client, workers, options.memory, Scratch(options.scratch))


@contextmanager
def script_left_alone() -> Iterator[None]:
    """Inside, Python does not import the running script into the processes that it starts.

    Python imports the script for functions that the script defines, which would run the whole script again in every
    worker, unless its statements are inside ``if __name__ == "__main__":``. Dask sends such functions by value.
    """
    main = vars(sys.modules["__main__"])
    before: dict[str, Any] = {name: main[name] for name in ("__file__", "__spec__") if name in main}
    main.update(dict.fromkeys(before))
    try:
        yield
    finally:
        main.update(before)


@contextmanager
def _started(workers: int, memory: int) -> Iterator[SpecCluster]:
    """A scheduler and workers on the loopback interface.

    Raises:
        LaunchError: a worker was killed, or ended with an error, before it was ready.
    """
    from distributed import Security, SpecCluster  # noqa: PLC0415 - takes a second to import

    from gnnloom.pipeline.cluster.processes import Guard, GuardedNanny, PagelessScheduler  # noqa: PLC0415

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
        raise LaunchError(f"{NOT_STARTED}, lower --workers, or run without worker processes (--workers 0)") from error
    with local:
        try:
            yield local
        except Exception:
            raise
        # Nobody waits for the work of the workers, and the thread of a task cannot be stopped.
        except BaseException:
            for nanny in local.workers.values():
                nanny.end_now()
            raise


@contextmanager
def _until_replaced(client: Client, workers: int) -> Iterator[None]:
    """After an error because workers were killed, wait until there are ``workers`` again.

    A worker that is closed while it starts prints a traceback.
    """
    try:
        yield
    except LaunchError as error:
        if not isinstance(error, LostClusterError):
            with suppress(OSError, TimeoutError):
                client.wait_for_workers(workers, timeout=_REPLACED_SECONDS)
        raise


def worker_settings() -> dict[str, Any]:
    """Dask's settings: every worker has one thread, and the stages keep to their memory budget themselves."""
    variables = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    # A worker keeps the memory that one task freed for the next, whose buffers have similar sizes: touching fresh pages
    # is slow. One arena only, because glibc's per-thread arenas cannot serve blocks of more than 64 MiB.
    keep = str(KEPT_ALLOCATION)
    variables |= {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": keep, "MALLOC_TRIM_THRESHOLD_": keep}
    variables |= {"NUMBA_NUM_THREADS": "1", **SAFE_PATH}
    return {
        WORKER_ENVIRONMENT: variables,
        "distributed.worker.preload": ["gnnloom.pipeline.cluster.quiet"],
        "distributed.worker.multiprocessing-method": "spawn",
        # Where a worker has a limit, Dask spills results and pauses the worker well below it. Results are a few
        # numbers, and pages of mapped files count as the worker's own: only the limit itself ends a worker.
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.comm.timeouts.connect": "60s",
        # By default, Dask closes a nanny that has not replaced its worker within 15 seconds, and starts no other one:
        # on a busy machine, the tasks would then wait forever.
        "distributed.deploy.lost-worker-timeout": "1000 days",
        "distributed.scheduler.allowed-failures": 3,
    }


@contextmanager
def _connect(options: ClusterOptions) -> Iterator[Cluster]:
    address = _scheduler_address(options)
    with dask_silenced(), steady_clock(), _client(options, address) as client, silence_named(client):
        threads = client.nthreads().values()
        if not threads:
            raise InputError(f"{options.address}: the scheduler has no workers")
        memory = memory_per_thread(options.memory, max(threads))
        yield DaskCluster(client, sum(threads), memory, Scratch(options.scratch))


def memory_per_thread(memory: int, threads: int) -> int:
    """Bytes for a task of a worker with several threads: they share the memory, and hold the libraries once."""
    return BASE_MEMORY + (memory - BASE_MEMORY) // threads


def _client(options: ClusterOptions, address: str) -> Client:
    from distributed import Client  # noqa: PLC0415 - takes a second to import
    from distributed.comm.addressing import get_address_host_port, parse_address  # noqa: PLC0415

    try:
        # Connects once: a client that fails to connect leaves threads behind, for which the next may wait forever.
        if parse_address(address)[0] in {"tcp", "tls"}:
            socket.create_connection(get_address_host_port(address), timeout=30).close()
        return Client(address, timeout="30s")
    except (OSError, TimeoutError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in OF_LIMITS:
            raise
        raise InputError(f"{options.address}: no Dask scheduler answers there ({error})") from error


def _scheduler_address(options: ClusterOptions) -> str:
    if not options.address:
        raise InputError(f"cluster {options.kind!r}: expected an address, such as tcp://host:8786, or a scheduler file")
    if options.kind == "address":
        return options.address
    try:
        address = read_json(Path(options.address), sealed=False).get("address")
    except (CorruptError, OSError) as error:
        check_is_of_content(error, options.address, OF_PERMISSION)
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
            with silence_named(client), _until_replaced(client, workers):
                yield DaskCluster(client, workers, options.memory, Scratch(options.scratch))
        finally:
            client.shutdown()  # otherwise the other ranks would serve forever


def check_report(file: Path | None, workers: int | None) -> None:
    """Check that a report can be written, before anything runs.

    Raises:
        InputError: the file's folder does not exist, or there are no workers to report on.
        MissingPackageError: bokeh, which Dask needs for the report, is not installed.
    """
    if file is None:
        return
    if workers == 0:
        raise InputError("a performance report is about worker processes; pass --workers 1 or more")
    if not file.absolute().parent.is_dir():
        raise InputError(f"{file}: no folder {file.absolute().parent}; create it first")
    if find_spec("bokeh") is None:
        raise MissingPackageError("a performance report needs bokeh: `pip install 'gnnloom[report]'`")


@contextmanager
def reported(file: Path | None) -> Iterator[None]:
    """Report on the current Dask client's cluster during the ``with`` block, if there is a file for the report."""
    if file is None:
        yield
        return
    from distributed import performance_report  # noqa: PLC0415 - takes a second to import

    with performance_report(filename=str(file)):
        yield
