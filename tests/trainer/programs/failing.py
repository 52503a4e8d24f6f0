"""Rank 0 prints 1 MB and more while rank 1 fails, in the way that the argument names, with an error of three lines.

With the argument ``quiet``, rank 0 prints nothing: the launcher may put a line into the middle of another rank's line.
"""

import os
import signal
import sys

from mpi4py import MPI

from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.comm.ending import end_job, report
from gnnloom.trainer.comm.mpi import MpiCommunicator
from gnnloom.trainer.job.stop import leave

LINES = "first: a line\nerror: second\n  third 'quoted'"

comm, how = MpiCommunicator(MPI.COMM_WORLD), sys.argv[1]
if how == "agreed":
    code = report(CollectiveError(LINES, reports=comm.rank == 1, code=3))
    comm.barrier()
    if comm.rank == 0 and "quiet" not in sys.argv:
        sys.stderr.write(10_000 * ("x" * 99 + "\n"))
    leave(comm, code)
comm.barrier()
while comm.rank == 0:
    sys.stderr.write(100 * ("x" * 99 + "\n"))
if how == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
end_job(comm, ZeroDivisionError(LINES) if how == "defect" else InputError(LINES))
