"""Trains a list of configurations on all ranks of this job, and writes what every rank allocated in later epochs."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from mpi4py import MPI

from gnnloom.trainer.comm.mpi import MpiCommunicator
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from support.allocations import watched_epochs
from support.waiting import sleep_between_looks


def main(given: str, result: str) -> None:
    sleep_between_looks()
    world = MPI.COMM_WORLD
    mine = []
    for content in json.loads(Path(given).read_text()):
        with watched_epochs() as watched:
            train(MpiCommunicator(world), TrainConfig.of(**content))
        mine.append(asdict(watched))
    everyones = world.gather(mine)
    if everyones is not None:
        Path(result).write_text(json.dumps(everyones))


main(*sys.argv[1:])
