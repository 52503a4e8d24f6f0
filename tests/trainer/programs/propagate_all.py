"""Runs a list of propagations, each on as many of this job's ranks as it asks for."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from mpi4py import MPI

from gnnloom.storage.faults import VARIABLE, forget_plans
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.mpi import MpiCommunicator
from gnnloom.trainer.config.propagate_config import PropagateConfig
from gnnloom.trainer.training.propagate import propagate
from support.waiting import sleep_between_looks


def run(group: Communicator, config: dict[str, Any], stops: list[int]) -> dict[str, Any]:
    """Propagate; the rank that is named first is asked to stop when it is asked for the so-manieth time."""
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return bool(stops) and group.rank == stops[0] and asked >= stops[1]

    try:
        return propagate(group, PropagateConfig.of(**config), stop)
    except CollectiveError as error:
        return {"error": str(error), "code": error.code}


def main(given: str, result: str) -> None:
    sleep_between_looks()
    world = MpiCommunicator(MPI.COMM_WORLD)
    jobs = json.loads(Path(given).read_text())
    groups = {size: world.group(int(world.rank < size), world.rank) for size in sorted({job["ranks"] for job in jobs})}
    results = []
    for job in jobs:
        os.environ[VARIABLE] = job.pop("fault", "")
        forget_plans()
        stops = job.pop("stops", [])
        results.append(run(groups[job["ranks"]], job, stops) if world.rank < job["ranks"] else {})
        world.barrier()
    if world.rank == 0:
        Path(result).write_text(json.dumps(results))


main(*sys.argv[1:])
