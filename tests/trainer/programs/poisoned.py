"""Trains every configuration twice, in clean and in poisoned memory; reports both curves of losses."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path

from mpi4py import MPI

from gnnloom.trainer.comm.mpi import MpiCommunicator
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from support.poison import poisoned_memory
from support.waiting import sleep_between_looks


def main(given: str, result: str) -> None:
    sleep_between_looks()
    comm, found = MpiCommunicator(MPI.COMM_WORLD), []
    for content in json.loads(Path(given).read_text()):
        curves = []
        for memory, name in ((nullcontext(), "clean"), (poisoned_memory(), "poisoned")):
            with memory:
                named = {**content, "run": f"{content['run']}-{name}"}
                curves.append(train(comm, TrainConfig.of(**named))["loss"])
        found.append(curves)
    if comm.rank == 0:
        Path(result).write_text(json.dumps(found))


main(*sys.argv[1:])
