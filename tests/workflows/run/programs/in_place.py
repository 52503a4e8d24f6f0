"""Runs commands one after the other in this process, which is one rank of an MPI job."""

import json
import sys

from gnnloom.workflows.cli.main import cli

for arguments in json.loads(sys.argv[1]):
    cli(arguments, standalone_mode=False)
