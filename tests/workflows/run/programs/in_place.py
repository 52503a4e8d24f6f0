"""Runs commands one after the other in this process, which is one rank of an MPI job.

A rank runs the commands of the argument with its number, or else of the first one.
"""

import json
import sys

from mpi4py import MPI

from gnnloom.workflows.cli.main import cli

lists = sys.argv[1:]
rank = MPI.COMM_WORLD.rank
for arguments in json.loads(lists[rank if rank < len(lists) else 0]):
    cli(arguments, standalone_mode=False)
