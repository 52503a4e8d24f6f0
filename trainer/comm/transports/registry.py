"""The transport of this job, and the rank as which this process was started."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import gnnloom.trainer.comm.transports
from gnnloom.storage.descriptors import load_descriptors
from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm.transports import mpi
from gnnloom.trainer.comm.transports.transport import Transport

if TYPE_CHECKING:
    from gnnloom.trainer.comm.communicator import Communicator

#: Environment variable that names the transport, for ranks and for the process that starts them.
VARIABLE: Final = "GNNLOOM_TRANSPORT"


def chosen_transport() -> Transport:
    """The transport that the environment names; ``mpi`` by default.

    Raises:
        InputError: there is no transport of this name.
    """
    name = os.environ.get(VARIABLE, mpi.TRANSPORT.name)
    # Without a search for installed packages, which would delay every command.
    if name == mpi.TRANSPORT.name:
        return mpi.TRANSPORT
    found = load_descriptors(gnnloom.trainer.comm.transports, "TRANSPORT", "gnnloom.transports", Transport)
    if name not in found:
        raise InputError(f"${VARIABLE} {name!r}: expected one of {', '.join(found)}")
    return found[name]


def lender() -> Callable[[], AbstractContextManager[Any]]:
    """A function that lends a communicator of all ranks to a library that takes communicators of this transport.

    Raises:
        InputError: there is no such library.
    """
    transport = chosen_transport()
    if transport.lend is None:
        raise InputError(f"transport {transport.name}: no Dask cluster runs on its ranks; prepare on one machine first")
    return transport.lend


def world() -> Communicator:
    """All ranks of this job. Entry points call it; everything else takes a communicator. Collective."""
    return chosen_transport().join()


@dataclass(frozen=True)
class LaunchedRank:
    """This process's rank among the ranks that a launcher started; rank 0 of 1 without a launcher."""

    rank: int = 0
    size: int = 1

    @classmethod
    def from_environment(cls) -> LaunchedRank:
        """Read the variables of whichever launcher started this process. Does not start MPI."""
        for rank, size in chosen_transport().variables:
            stated = os.environ.get(rank, ""), os.environ.get(size, "")
            # A single rank needs no agreement, so it behaves like a process without a launcher.
            if all(text.isdecimal() for text in stated) and int(stated[1]) > 1:
                return cls(*map(int, stated))
        return cls()
