"""A rank that ends the job while the launcher's process above it is busy, and reads what ranks write only later."""

import os
import signal
import subprocess

from mpi4py import MPI

from gnnloom.trainer.comm.ending import end_job
from gnnloom.trainer.comm.mpi import world

MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 1:
    launcher = os.getppid()
    nowhere = subprocess.DEVNULL
    subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -CONT {launcher}"], stdout=nowhere, stderr=nowhere)
    os.kill(launcher, signal.SIGSTOP)
    end_job(world(), MemoryError("of rank 1"))
MPI.COMM_WORLD.Barrier()
