"""A Dask cluster on the ranks of an MPI job: rank 0 schedules, rank 1 is the client, the others work.

Made by dask-mpi, and closed by the client, after which every rank goes on.  Workers run under a
nanny each, which replaces one that is killed.
"""

from __future__ import annotations

import ipaddress
import logging
import os
from typing import Any

from gnnloom.pipeline.tasks.cluster import worker_settings
from gnnloom.storage.errors import InputError

#: Scheduler, client and one worker.
LEAST_RANKS = 3

#: Seconds after which a worker that finds no scheduler ends; one may be reborn while the cluster closes.
_DEATH_TIMEOUT = 60


def serve_ranks(comm: Any, ranks_here: int, interface: str | None, *, dashboard: bool) -> bool:
    """Make a cluster of the ranks. Collective.

    Args:
        comm: an MPI communicator of ``LEAST_RANKS`` or more that nothing else uses.
        ranks_here: of them on this machine, which share its memory.
        interface: of the network; by default the loopback where all ranks are on one machine.
        dashboard: serve Dask's dashboard on port 8787 of the interface.

    Returns:
        True at once on the client's rank, False on the others after the client has closed the cluster.

    Raises:
        InputError: several machines and no interface, or no such interface here.
    """
    chosen, address = _interface(interface, alone=ranks_here == comm.Get_size())
    _silence()
    from dask_mpi.initialize import initialize  # noqa: PLC0415 - takes a second to import

    options = {"death_timeout": _DEATH_TIMEOUT, "silence_logs": logging.CRITICAL}
    is_client: bool = initialize(
        comm=comm,
        exit=False,
        interface=chosen,
        nthreads=1,
        memory_limit=memory_per_rank(ranks_here),
        worker_class="distributed.Nanny",
        worker_options=options,
        dashboard=dashboard,
        # Without a host the scheduler's HTTP server would listen on every interface.
        dashboard_address=f"{address}:{8787 if dashboard else 0}",
    )
    return is_client


def memory_per_rank(ranks_here: int) -> int:
    """Bytes that each of this machine's ranks may use: its share of the allocation, or of the machine."""
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
                f" interface) or with --set cluster.interface=NAME; here are {', '.join(usable)}"
            )
        name = next(interface for interface, found in usable.items() if ipaddress.ip_address(found).is_loopback)
    if name not in usable:
        raise InputError(f"network interface {name!r}: there are {', '.join(usable)}")
    return name, usable[name]


def _is_ipv4(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).version == 4
    except ValueError:
        return False


def _silence() -> None:
    """What Dask says while a cluster closes tells a user nothing; what fails is raised where the client waits."""
    import dask  # noqa: PLC0415 - takes a second to import
    import distributed  # noqa: F401, PLC0415 - sets up its loggers when it is imported

    settings = worker_settings()
    settings["distributed.nanny.pre-spawn-environ"]["DASK_LOGGING__DISTRIBUTED"] = "critical"
    dask.config.set(settings)
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)
