"""Trains a list of configurations on all ranks of this job and reports only their losses."""

import json
import sys
from pathlib import Path

from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.mpi import world
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import Training, train


class Unsaved:
    """Replaces the method that writes a checkpoint, which takes longer than all epochs of such a small run."""

    def __call__(self, epoch: int, *, is_best: bool, is_due: bool) -> None:
        pass


def curve(comm: Communicator, config: TrainConfig) -> list[float] | str:
    try:
        losses: list[float] = train(comm, config)["loss"]
    except CollectiveError as error:
        return str(error)
    return losses


def main(given: str, result: str) -> None:
    comm = world()
    Training._save = Unsaved()  # type: ignore[method-assign,assignment]
    configs = [TrainConfig.of(**content) for content in json.loads(Path(given).read_text())]
    curves = [curve(comm, config) for config in configs]
    if comm.rank == 0:
        Path(result).write_text(json.dumps(curves))


main(*sys.argv[1:])
