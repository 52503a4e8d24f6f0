"""The transport of this job."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import gnnloom.trainer.comm.transports
from gnnloom.storage.descriptors import load_descriptors
from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm.transports import mpi
from gnnloom.trainer.comm.transports.transport import Transport

if TYPE_CHECKING:
    from gnnloom.trainer.comm.communicator import Communicator

#: Environment variable that names the transport, of ranks and of the process that starts them.
VARIABLE: Final = "GNNLOOM_TRANSPORT"


def chosen_transport() -> Transport:
    """The transport that the environment names; ``mpi`` by default.

    Raises:
        InputError: there is none of that name.
    """
    name = os.environ.get(VARIABLE, mpi.TRANSPORT.name)
    # Without a look at what is installed, which every command would wait for.
    if name == mpi.TRANSPORT.name:
        return mpi.TRANSPORT
    found = load_descriptors(gnnloom.trainer.comm.transports, "TRANSPORT", "gnnloom.transports", Transport)
    if name not in found:
        raise InputError(f"${VARIABLE} {name!r}: expected one of {', '.join(found)}")
    return found[name]


def world() -> Communicator:
    """All ranks of this job. Entry points call it; everything else takes a communicator. Collective."""
    return chosen_transport().join()
