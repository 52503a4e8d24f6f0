"""Where the ranks of an MPI job are, checked by all together before they take different roles."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gnnloom.pipeline.cluster.interfaces import (
    OFFER_NUMBERS,
    Beacon,
    Offer,
    check_interface,
    loopback,
    none_reached,
    reached,
)
from gnnloom.pipeline.cluster.mpi_cluster import LEAST_RANKS, memory_per_rank
from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.workflows.formatting import readable_bytes
from gnnloom.workflows.recipe.request import Assignment

Result = TypeVar("Result")


def one_line(action: Callable[[], Result]) -> Result:
    """Run ``action``; an error of the system becomes one that all ranks can agree on.

    Raises:
        InputError: a file or a network cannot be used.
    """
    try:
        return action()
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise InputError(f"{where}{error.strerror or error}") from error


@dataclass(frozen=True)
class Place:
    """Where a rank is: how many ranks share its machine, and the interface on which it reaches the others."""

    ranks_here: int
    interface: str


def find_place(comm: Communicator, assignment: Assignment) -> Place:
    """Find where this rank is. Collective.

    Raises:
        CollectiveError: a machine has too little memory, or no interface reaches rank 0's machine from all others.
    """
    # Memory limits are per rank: the ranks of one machine share its memory.
    ranks_here = comm.ranks_on_this_machine()
    # Too few for a cluster: no rank needs more memory than it gets, and none talks to another.
    if comm.size < LEAST_RANKS:
        return Place(ranks_here, "")
    together(comm, lambda: _check_memory(assignment, ranks_here))
    if assignment.cluster.scratch is not None:
        check_scratch(comm, assignment.cluster.scratch)
    wanted = assignment.recipe.cluster.interface
    if wanted is not None:
        return Place(ranks_here, together(comm, lambda: check_interface(wanted)))
    if ranks_here == comm.size:
        return Place(ranks_here, together(comm, loopback))
    return Place(ranks_here, _find_interface(comm))


def check_scratch(comm: Communicator, folder: Path) -> None:
    """Check that all ranks see what one of them writes into the scratch folder. Collective."""
    token = int(comm.gather_numbers([secrets.randbits(48)])[0, 0])
    written = folder / f"gnnloom-seen-by-all-{token:012x}"

    def write() -> None:
        if comm.rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            written.touch()

    def look() -> None:
        if not written.exists():
            raise InputError(
                f"[cluster] scratch = {folder}: {socket.gethostname()} does not see what rank 0 writes there; choose a"
                " folder that all nodes share, or prepare on one node"
            )

    together(comm, lambda: one_line(write))
    try:
        together(comm, look)
    finally:
        if comm.rank == 0:
            written.unlink(missing_ok=True)


def _find_interface(comm: Communicator) -> str:
    """Return the fastest interface of this machine that reaches rank 0's, over a network that all ranks share.

    Collective.
    """
    beacon = together(comm, lambda: one_line(Beacon) if comm.rank == 0 else None)
    try:
        numbers = beacon.offer.to_numbers() if beacon is not None else [0] * OFFER_NUMBERS
        found = reached(Offer.from_numbers(comm.gather_numbers(numbers)[0].tolist()))
        # This exchange also keeps rank 0's beacon up until all ranks have tried.
        num_reaching = comm.gather_numbers([name is not None for name in found]).sum(axis=0).tolist()
    finally:
        if beacon is not None:
            beacon.close()
    name = next((name for name, count in zip(found, num_reaching, strict=True) if count == comm.size), None)
    return together(comm, lambda: _found(name))


def _found(name: str | None) -> str:
    if name is None:
        raise none_reached()
    return name


def _check_memory(assignment: Assignment, ranks_here: int) -> None:
    available = memory_per_rank(ranks_here)
    if assignment.cluster.memory > available:
        raise InputError(
            f"{assignment.recipe.source_name}: [cluster] memory = {assignment.recipe.cluster.memory}, but each of the"
            f" {ranks_here} ranks on this machine gets {readable_bytes(available)}: lower it, or start fewer ranks"
        )
