"""Trains a list of configurations and predicts with others, each on as many of this job's ranks as it asks for."""

import json
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

from mpi4py import MPI

from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.mpi import MpiCommunicator
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.predict import predict
from support.waiting import sleep_between_looks


def run(group: Communicator, content: dict[str, Any]) -> dict[str, Any]:
    try:
        if "epochs" in content:
            return train(group, TrainConfig.of(**content))
        return predict(group, PredictConfig.of(**content))
    except CollectiveError as error:
        return {"error": str(error), "code": error.code}


def wait_asleep() -> None:
    """A barrier at which waiting ranks sleep, so the others get the processors."""
    request = MPI.COMM_WORLD.Ibarrier()
    while not request.Test():
        time.sleep(0.01)


def main(given: str, result: str) -> None:
    # A rehearsal takes longer than training on a tiny graph; tests that train in their own process do rehearse.
    patch("gnnloom.trainer.training.start.rehearse", lambda *_: None).start()
    # Every run would list all runs of its dataset, a tenth of the time of rank 0 where they are many.
    patch("gnnloom.storage.format.listing.refresh_list", lambda _: None).start()
    sleep_between_looks()
    world = MpiCommunicator(MPI.COMM_WORLD)
    jobs = json.loads(Path(given).read_text())
    groups = {size: world.group(int(world.rank < size), world.rank) for size in sorted({job["ranks"] for job in jobs})}
    results = []
    for job in jobs:
        results.append(run(groups[job["ranks"]], job) if world.rank < job["ranks"] else {})
        wait_asleep()
    if world.rank == 0:
        Path(result).write_text(json.dumps(results))


main(*sys.argv[1:])
