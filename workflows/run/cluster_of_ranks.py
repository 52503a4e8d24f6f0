"""Makes the Dask cluster that prepares a recipe: on the ranks of an MPI job, which then train, or on new processes.

Loads neither torch nor MPI, which only the ranks of a job have.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gnnloom.pipeline.cluster.interfaces import Beacon, Offer, check_interface, loopback, none_reached, reached
from gnnloom.pipeline.cluster.mpi_cluster import LEAST_RANKS, memory_per_rank, serve_ranks
from gnnloom.pipeline.cluster.open_cluster import ClusterOptions
from gnnloom.storage.errors import InputError
from gnnloom.storage.shared_memory import remove_abandoned
from gnnloom.trainer.comm.transports.registry import lender
from gnnloom.trainer.job.ranks import Ranks
from gnnloom.workflows.formatting import readable_bytes
from gnnloom.workflows.recipe.found import RecipeFacts

if TYPE_CHECKING:
    from gnnloom.trainer.comm.communicator import Communicator


@contextmanager
def cluster_of_ranks(ranks: Ranks, found: RecipeFacts) -> Iterator[ClusterOptions | None]:
    """Make a cluster of the ranks of a job, if requested. Collective.

    Fewer than three ranks cannot be scheduler, client and worker: then the first rank runs the tasks in its process.

    Yields:
        On the rank that is the client, at once, the options to open the cluster; None on other ranks, after they have
        served.

    Raises:
        CollectiveError: a machine has too little memory, no interface reaches rank 0's machine from all others, not all
            ranks see the scratch folder, or the transport has no communicator for Dask.
    """
    options, section, comm = found.cluster, found.recipe.cluster, ranks.comm
    if comm is None:
        yield options
        return
    # Files that killed jobs left.
    if comm.this_machine().rank == 0:
        remove_abandoned()
    if options.kind != "mpi" or comm.size < LEAST_RANKS:
        alone = replace(options, kind="local", workers=0) if options.kind == "mpi" else options
        yield alone if ranks.is_first else None
        return
    # Everything that can fail for a reason that a user can fix is checked here, by all ranks together: once the ranks
    # have taken different roles, an error of one rank leaves the others waiting.
    ranks_here = comm.this_machine().ranks

    def check_memory() -> None:
        # Memory limits are per rank: the ranks of one machine share its memory.
        available = memory_per_rank(ranks_here)
        if options.memory > available:
            raise InputError(
                f"{found.recipe.source_name}: [cluster] memory = {section.memory}, but each of the {ranks_here}"
                f" ranks on this machine gets {readable_bytes(available)}: lower it, or start fewer ranks"
            )

    ranks.agree(check_memory)
    if options.scratch is not None:
        check_scratch(ranks, options.scratch)
    interface = _interface(ranks, comm, section.interface, is_one_machine=ranks_here == comm.size)
    # Dask gets its own communicator, so that its messages cannot be mixed up with the trainer's.
    with ranks.agree(lender)() as lent:
        is_client = serve_ranks(lent, ranks_here, interface, options.memory, dashboard=section.dashboard)
        # One rank is the scheduler and one is the client.
        yield replace(options, workers=comm.size - 2) if is_client else None


def check_scratch(ranks: Ranks, folder: Path) -> None:
    """Check that all ranks see the files that one rank writes into the scratch folder. Collective."""

    def write() -> str:
        folder.mkdir(parents=True, exist_ok=True)
        written = folder / f"gnnloom-seen-by-all-{secrets.token_hex(6)}"
        written.touch()
        return str(written)

    def look() -> None:
        if not written.exists():
            raise InputError(
                f"[cluster] scratch = {folder}: {socket.gethostname()} does not see what rank 0 writes there; choose a"
                " folder that all nodes share, or prepare on one node"
            )

    written = Path(ranks.on_first(write))
    try:
        ranks.agree(look)
    finally:
        if ranks.is_first:
            written.unlink(missing_ok=True)


def _interface(ranks: Ranks, comm: Communicator, wanted: str | None, *, is_one_machine: bool) -> str:
    """The network interface of this machine that reaches the other ranks: as wanted, or the fastest. Collective."""
    if wanted is not None:
        return ranks.agree(lambda: check_interface(wanted))
    if is_one_machine:
        return ranks.agree(loopback)
    beacon = ranks.agree(lambda: Beacon() if ranks.is_first else None)
    try:
        offer = Offer.from_json(ranks.on_first(lambda: beacon.offer.to_json() if beacon is not None else {}))
        found = reached(offer)
        # This exchange also keeps rank 0's beacon up until all ranks have tried.
        num_reaching = comm.gather_numbers([name is not None for name in found]).sum(axis=0).tolist()
    finally:
        if beacon is not None:
            beacon.close()
    name = next((name for name, count in zip(found, num_reaching, strict=True) if count == comm.size), None)

    def reaching() -> str:
        if name is None:
            raise none_reached()
        return name

    return ranks.agree(reaching)
