"""Trains configurations on ranks whose sums over all ranks differ in the last bits; reports every rank's result."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from mpi4py import MPI

from gnnloom.trainer.comm.communicator import Reduction
from gnnloom.trainer.comm.mpi import MpiCommunicator
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from support.waiting import sleep_between_looks


def shift_sums() -> None:
    """Make every float64 sum of losses and metrics smaller than the one before on rank 1, by some of its last bits."""
    reduce, sums = MpiCommunicator.all_reduce, 0

    def shifted(self: MpiCommunicator, tensor: torch.Tensor, kind: Kind, operation: Reduction = Reduction.SUM) -> None:
        nonlocal sums
        reduce(self, tensor, kind, operation)
        if kind in {Kind.LOSS, Kind.METRICS} and tensor.dtype == torch.float64 and MPI.COMM_WORLD.rank == 1:
            sums += 1
            tensor.mul_(1 - sums * torch.finfo(torch.float64).eps)

    MpiCommunicator.all_reduce = shifted  # type: ignore[method-assign]


def main(given: str, result: str) -> None:
    shift_sums()
    sleep_between_looks()
    world, found = MpiCommunicator(MPI.COMM_WORLD), []
    for content in json.loads(Path(given).read_text()):
        summary: dict[str, Any] = train(world, TrainConfig.of(**content))
        found.append(MPI.COMM_WORLD.gather({name: summary.get(name) for name in ("loss", "best", "stopped_early")}))
    if world.rank == 0:
        Path(result).write_text(json.dumps(found))


main(*sys.argv[1:])
