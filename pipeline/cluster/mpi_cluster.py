"""A Dask cluster on the ranks of an MPI job: rank 0 is the scheduler, rank 1 the client, the others are workers.

dask-mpi starts it and the client closes it, after which every rank continues. Each worker runs under a nanny, which
ends it if it holds far too much memory, and replaces it if it is killed. They talk by TLS, with a certificate that only
the ranks have.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
from typing import Any

from gnnloom.pipeline.cluster.certificate import SECRET_BYTES, Certificate, make_certificate
from gnnloom.pipeline.cluster.interfaces import usable_interfaces
from gnnloom.pipeline.cluster.open_cluster import NOT_STARTED, WORKER_ENVIRONMENT, script_left_alone, worker_settings
from gnnloom.pipeline.cluster.quiet import environment, silence_dask, start_quiet_tracker
from gnnloom.pipeline.cluster.steady_clock import use_steady_clock
from gnnloom.storage.errors import LaunchError

#: Minimum number of ranks of a cluster: scheduler, client and one worker.
LEAST_RANKS = 3

#: Seconds after which a worker that finds no scheduler exits. A nanny may start one while the cluster closes.
_DEATH_TIMEOUT = 60


def serve_ranks(comm: Any, ranks_here: int, interface: str, memory: int, *, dashboard: bool) -> bool:
    """Make a cluster of the ranks. Collective.

    Args:
        comm: an MPI communicator of at least ``LEAST_RANKS`` ranks that nothing else uses.
        ranks_here: number of its ranks on this machine, which share the memory.
        interface: network interface of this machine that reaches the other ranks.
        memory: bytes that a worker may use.
        dashboard: whether to serve Dask's dashboard on port 8787 of the interface.

    Returns:
        True on the client's rank, at once; False on the others, after the client has closed the cluster.

    Raises:
        LaunchError: a worker process cannot be started.
    """
    address = usable_interfaces()[interface]
    certificate = bytearray(make_certificate().to_bytes() if comm.Get_rank() == 0 else SECRET_BYTES)
    comm.Bcast(certificate, root=0)
    variables = _configure(Certificate.from_bytes(bytes(certificate)))
    if comm.Get_rank() >= LEAST_RANKS - 1:
        # Batch systems signal all processes of a job, and the client closes the cluster. Worker processes inherit what
        # a rank ignores; the default is to die.
        for number in (signal.SIGUSR1, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_DFL:
                signal.signal(number, signal.SIG_IGN)
    dask_mpi = importlib.import_module("dask_mpi.initialize")  # takes a second to import
    from gnnloom.pipeline.cluster.processes import Guard, PagelessScheduler  # noqa: PLC0415 - imports Dask

    if not dashboard:
        # dask-mpi has no option for the scheduler's class. This process runs no other scheduler.
        dask_mpi.Scheduler = PagelessScheduler  # type: ignore[attr-defined]
    guard = Guard.of(memory, memory_per_rank(ranks_here))
    options = {"death_timeout": _DEATH_TIMEOUT, "silence_logs": logging.CRITICAL, "guard": guard}
    with environment(variables), script_left_alone():
        try:
            is_client: bool = dask_mpi.initialize(
                comm=comm,
                # The ranks go on as ranks of the trainer.
                exit=False,
                interface=interface,
                protocol="tls",
                nthreads=1,
                worker_class="gnnloom.pipeline.cluster.processes.GuardedNanny",
                worker_options=options,
                dashboard=dashboard,
                # Without a host, the scheduler's HTTP server would listen on every interface.
                dashboard_address=f"{address}:8787",
            )
        except RuntimeError as error:
            raise LaunchError(f"{NOT_STARTED}, or start fewer ranks") from error
    return is_client


def memory_per_rank(ranks_here: int) -> int:
    """Bytes that each rank on this machine may use: its share of the job's allocation, or of the machine."""
    from distributed.system import MEMORY_LIMIT  # noqa: PLC0415 - takes a second to import

    limits = [int(MEMORY_LIMIT)]
    if stated := os.environ.get("SLURM_MEM_PER_NODE", ""):
        limits.append(int(stated) << 20)
    elif stated := os.environ.get("SLURM_MEM_PER_CPU", ""):
        limits.append((int(stated) << 20) * int(os.environ.get("SLURM_CPUS_ON_NODE", "1")))
    return min(limits) // ranks_here


def _configure(certificate: Certificate) -> dict[str, str]:
    """Configure Dask in this process; returns the environment of workers.

    Its messages about a cluster that closes mean nothing to users, and are silenced; failures reach the client.
    """
    import dask  # noqa: PLC0415 - takes a second to import

    settings = worker_settings() | certificate.settings()
    variables: dict[str, str] = settings[WORKER_ENVIRONMENT]
    variables["DASK_LOGGING__DISTRIBUTED"] = "critical"
    dask.config.set(settings)
    silence_dask()
    use_steady_clock()
    start_quiet_tracker()
    return variables
