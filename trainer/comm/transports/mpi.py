"""``mpi``: the ranks of an MPI job."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnloom.storage.errors import LaunchError
from gnnloom.trainer.comm.transports.mpich_output import is_of_launcher, why_ended
from gnnloom.trainer.comm.transports.transport import Transport

if TYPE_CHECKING:
    from gnnloom.trainer.comm.communicator import Communicator

#: Of linux/prctl.h.
_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG = 1, 2


def join() -> Communicator:
    """Start MPI, unless this process has done so."""
    with _ending_with_parent():
        from gnnloom.trainer.comm.mpi import world  # noqa: PLC0415 - starts MPI

        return world()


@contextmanager
def _ending_with_parent() -> Iterator[None]:
    """Inside, the system kills this rank if the process that started it ends.

    While MPI starts, a rank waits for all others in compiled code. If the process that started it is killed meanwhile,
    some ranks have ended with it, and MPICH would wait for them forever, and its launcher for this rank.
    """
    import ctypes  # noqa: PLC0415 - every command would wait for it

    prctl, before = ctypes.CDLL(None).prctl, ctypes.c_int(0)
    prctl(_PR_GET_PDEATHSIG, ctypes.byref(before))
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        yield
    finally:
        # Later, Python's own threads look after the job. Some launchers start ranks from threads that end early, which
        # the system treats as the end of the parent.
        prctl(_PR_SET_PDEATHSIG, before.value)


def lend() -> AbstractContextManager[Any]:
    """An MPI communicator of all ranks for another library, such as dask-mpi. Collective."""
    from gnnloom.trainer.comm.mpi import lent_world  # noqa: PLC0415 - starts MPI

    return lent_world()


def find_mpiexec() -> str:
    """Path of the MPI launcher: next to this Python, where the mpich wheel puts it, or on the PATH.

    Raises:
        LaunchError: there is no launcher.
    """
    bundled = Path(sys.executable).parent / "mpiexec"
    found = str(bundled) if bundled.exists() else shutil.which("mpiexec")
    if found is None:
        raise LaunchError(f"no mpiexec next to {sys.executable} or on the PATH; `pip install mpich` installs one")
    return found


TRANSPORT = Transport(
    name="mpi",
    order=0,
    help="The ranks of an MPI job",
    join=join,
    lend=lend,
    launcher=lambda ranks: [find_mpiexec(), "-n", str(ranks)],
    # -P: files of the current folder must not replace modules that a rank imports. mpi4py's runner aborts the whole job
    # when a rank ends with an exception that it does not catch.
    python=(sys.executable, "-P", "-m", "mpi4py"),
    environment={
        # A rank that ends the job prints the reason itself.
        "MPIR_CVAR_SUPPRESS_ABORT_MESSAGE": "1",
        # Ranks of one machine need no other network; MPICH with UCX would listen on all networks.
        "UCX_NET_DEVICES": "lo",
    },
    # As set by MPICH and its derivatives, by Open MPI, and by Slurm's `srun`. Only a step of several tasks counts for
    # Slurm: a batch script has SLURM_PROCID too, but not the size of a step.
    variables=(
        ("PMI_RANK", "PMI_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ),
    is_of_launcher=is_of_launcher,
    why_ended=why_ended,
)
