"""Trains a list of configurations, each on the first ranks of this job."""

import json
import os
import sys
import time
from pathlib import Path

from mpi4py import MPI

from gnnloom.trainer.comm import CollectiveError, Communicator
from gnnloom.trainer.config import TrainConfig
from gnnloom.trainer.loop import train


def run(world: Communicator, groups: dict, config: TrainConfig) -> dict:
    if world.rank >= config.ranks:
        return {}
    group = groups[config.ranks]
    try:
        return train(group, config)
    except CollectiveError as error:
        return {"error": str(error), "code": error.code}


def wait_asleep() -> None:
    """A barrier at which early ranks leave the processors to the others."""
    request = MPI.COMM_WORLD.Ibarrier()
    while not request.Test():
        time.sleep(0.01)


def main(given: str, result: str) -> None:
    # Waiting for the disk takes a third of so small a run, and nothing here is about what survives a power cut.
    os.fsync = lambda _: None
    world = Communicator(MPI.COMM_WORLD)
    configs = [TrainConfig.from_json(content) for content in json.loads(Path(given).read_text())]
    sizes = sorted({config.ranks for config in configs})
    groups = {size: world.group(int(world.rank < size), world.rank) for size in sizes}
    results = []
    for config in configs:
        results.append(run(world, groups, config))
        wait_asleep()
    if world.rank == 0:
        Path(result).write_text(json.dumps(results))


main(*sys.argv[1:])
