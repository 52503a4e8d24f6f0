"""Trains configurations whose every step excludes the same edges, each on as many ranks as it asks for."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from mpi4py import MPI

from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.mpi import MpiCommunicator
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.models.networks.model import Inputs
from gnnloom.trainer.operators.exclusion import ExcludingOperator
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.session import Session
from support.target_pairs import ListedPairs, Numbers
from support.waiting import sleep_between_looks

take_inputs = Session.take_inputs


def run(comm: Communicator, job: dict[str, Any]) -> Any:
    pairs = ListedPairs(np.array(job["pair"]), np.array(job["weight"]), job["symmetric"])
    chosen = Numbers(np.array(job["numbers"], np.int64))

    def excluding(session: Session) -> Inputs:
        assert isinstance(session.operator, ExcludingOperator)
        session.operator.prepare_targets(pairs)
        session.operator.exclude(chosen)
        return take_inputs(session)

    with patch.object(Session, "take_inputs", excluding):
        return train(comm, TrainConfig.of(**job["config"]))["loss"]


def main(given: str, result: str) -> None:
    patch("gnnloom.trainer.training.start.rehearse", lambda *_: None).start()
    sleep_between_looks()
    world = MpiCommunicator(MPI.COMM_WORLD)
    jobs = json.loads(Path(given).read_text())
    sizes = sorted({job["config"]["ranks"] for job in jobs})
    groups = {size: world.group(int(world.rank < size), world.rank) for size in sizes}
    found = []
    for job in jobs:
        ranks = job["config"]["ranks"]
        found.append(run(groups[ranks], job) if world.rank < ranks else None)
        world.barrier()
    if world.rank == 0:
        Path(result).write_text(json.dumps(found))


main(*sys.argv[1:])
