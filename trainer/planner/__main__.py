"""Entry point of the ranks that measure a machine.

mpirun -n 4 python -P -m mpi4py -m gnnloom.trainer.planner NAME --clock wall --threads 1 --result profile.json
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gnnloom.storage.disk.files import write_json
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.comm.ending import report
from gnnloom.trainer.comm.transports.registry import world
from gnnloom.trainer.planner.calibrate import CLOCKS, calibrate


def main() -> int:
    """Measure, and write the profile on rank 0; returns the exit code of this rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--result", type=Path, required=True)
    given = parser.parse_args()
    comm = world()
    try:
        profile = calibrate(comm, given.name, given.clock, given.threads, given.scale)
    except CollectiveError as error:
        return report(error)
    if comm.rank == 0:
        write_json(given.result, profile.to_json())
    return 0


if __name__ == "__main__":
    exit_code = main()
    world().close()
    sys.exit(exit_code)
