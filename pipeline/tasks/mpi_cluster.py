"""A Dask cluster on the ranks of an MPI job: rank 0 is the scheduler, rank 1 the client, the others are workers.

dask-mpi starts it and the client closes it, after which every rank continues. Each worker runs under a nanny, which
replaces it if it is killed.
"""

from __future__ import annotations

import ipaddress
import logging
import os
from typing import Any

from gnnloom.pipeline.tasks.cluster import worker_settings
from gnnloom.storage.errors import InputError

#: Minimum number of ranks of a cluster: scheduler, client and one worker.
LEAST_RANKS = 3

#: Seconds after which a worker that finds no scheduler exits. A nanny may start one while the cluster closes.
_DEATH_TIMEOUT = 60


def serve_ranks(comm: Any, ranks_here: int, interface: str | None, *, dashboard: bool) -> bool:
    """Make a cluster of the ranks. Collective.

    Args:
        comm: an MPI communicator of at least ``LEAST_RANKS`` ranks that nothing else uses.
        ranks_here: number of its ranks on this machine, which share the memory.
        interface: network interface; None for the loopback, if all ranks are on one machine.
        dashboard: whether to serve Dask's dashboard on port 8787 of the interface.

    Returns:
        True on the client's rank, at once; False on the others, after the client has closed the cluster.

    Raises:
        InputError: the ranks are on several machines and no interface is given, or this machine lacks it.
    """
    chosen, address = _interface(interface, alone=ranks_here == comm.Get_size())
    _silence()
    from dask_mpi.initialize import initialize  # noqa: PLC0415 - takes a second to import

    options = {"death_timeout": _DEATH_TIMEOUT, "silence_logs": logging.CRITICAL}
    is_client: bool = initialize(
        comm=comm,
        # The ranks go on as ranks of the trainer.
        exit=False,
        interface=chosen,
        nthreads=1,
        memory_limit=memory_per_rank(ranks_here),
        worker_class="distributed.Nanny",
        worker_options=options,
        dashboard=dashboard,
        # Without a host, the scheduler's HTTP server would listen on every interface.
        dashboard_address=f"{address}:{8787 if dashboard else 0}",
    )
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


def _interface(name: str | None, *, alone: bool) -> tuple[str, str]:
    """The network interface to use and its address here."""
    import psutil  # noqa: PLC0415 - comes with distributed

    addresses = {
        interface: [entry.address for entry in entries if _is_ipv4(entry.address)]
        for interface, entries in psutil.net_if_addrs().items()
    }
    usable = {interface: found[0] for interface, found in addresses.items() if found}
    if name is None:
        if not alone:
            raise InputError(
                "the ranks are on several machines: name the network interface between them in the recipe ([cluster]"
                f" interface) or with --set cluster.interface=NAME; this machine has {', '.join(usable)}"
            )
        name = next(interface for interface, found in usable.items() if ipaddress.ip_address(found).is_loopback)
    if name not in usable:
        raise InputError(f"network interface {name!r}: not on this machine, which has {', '.join(usable)}")
    return name, usable[name]


def _is_ipv4(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).version == 4
    except ValueError:
        return False


def _silence() -> None:
    """Silence Dask's messages about a cluster that closes, which mean nothing to users; failures reach the client."""
    import dask  # noqa: PLC0415 - takes a second to import
    import distributed  # noqa: F401, PLC0415 - sets up its loggers when it is imported

    settings = worker_settings()
    settings["distributed.nanny.pre-spawn-environ"]["DASK_LOGGING__DISTRIBUTED"] = "critical"
    dask.config.set(settings)
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)
