"""Epochs that exchange rows, and epochs that exchange covers, in turn: one rank of bench_exchange.

python -m mpi4py tests/benchmarks/exchange_ranks.py CONFIGURATION ROUNDS WIDTH:PRECISION ...

CONFIGURATION is a training run of p2p, as JSON. For each width and precision of its hidden layer, the ranks hold two
training runs that differ in their exchange only, and train an epoch of each in every round; each exchange is first in
every second round. Prints JSON, by WIDTH:PRECISION. For each exchange: the processor seconds of an epoch, summed over
the ranks (``processor``), and the seconds of the slowest rank (``wall``), as medians over the rounds after the warm-up;
the bytes that the halos of an epoch send (``bytes``), and the last ``loss``. Under ``ratio``: the seconds with covers
relative to the seconds with rows, as medians of the ratios within a round.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from epoch_figures import report

from gnnloom.storage import Catalog
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.mpi import world
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.config.continuation import OpenedRun
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import Training
from gnnloom.trainer.training.start import ReadStart

EXCHANGES = ("rows", "cover")
#: Rounds before the ones that count: they load kernels, touch memory, and choose between products by their time.
WARM_UP = 3
HALOS = (Kind.HALO_FORWARD, Kind.HALO_BACKWARD)


@dataclass
class Epochs:
    """The epochs of a training run on this rank, with the seconds of each measured epoch."""

    training: Training
    processor: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    bytes: int = 0
    loss: float = 0.0

    def train_one(self, number: int) -> None:
        """Train an epoch. Collective."""
        self.training.comm.barrier()
        worked = time.process_time()
        found = self.training._train_epoch(number, lambda: False)
        worked = time.process_time() - worked
        self.loss = found.loss
        self.bytes = sum(found.bytes.get(kind.value, 0) for kind in HALOS)
        if number >= WARM_UP:
            self.processor.append(worked)
            self.wall.append(found.seconds)


def main(content: str, rounds: str, *hidden: str) -> None:
    comm, config, found = world(), TrainConfig.of(**json.loads(content)), {}
    for each in hidden:
        width, precision = each.split(":")
        found[each] = _compare(comm, config.with_options(hidden=(int(width),), precision=precision), int(rounds))
    if comm.rank == 0:
        report(found)


def _compare(comm: Communicator, config: TrainConfig, rounds: int) -> dict[str, Any]:
    """Train with both exchanges. Collective."""
    epochs = {each: Epochs(_begin(comm, config.with_options(exchange=each, run=each))) for each in EXCHANGES}
    with closing(epochs["rows"].training), closing(epochs["cover"].training):
        for number in range(WARM_UP + rounds):
            for name in EXCHANGES if number % 2 else reversed(EXCHANGES):
                epochs[name].train_one(number)
    processor = {name: comm.gather_numbers(each.processor).sum(0).tolist() for name, each in epochs.items()}
    wall = {name: each.wall for name, each in epochs.items()}
    found: dict[str, Any] = {
        name: {
            "processor": statistics.median(processor[name]),
            "wall": statistics.median(wall[name]),
            "bytes": each.bytes,
            "loss": each.loss,
        }
        for name, each in epochs.items()
    }
    return {**found, "ratio": {"processor": _ratio(processor), "wall": _ratio(wall)}}


def _begin(comm: Communicator, config: TrainConfig) -> Training:
    """Read and build what the epochs need; stores nothing. Collective."""
    dataset = Catalog(config.data.catalog).dataset(config.data.dataset)
    run = Run(dataset.run_path(config.run_name))
    opened = OpenedRun.open(config, dataset, run, comm.rank, comm.size)
    return Training(comm, ReadStart.read(comm, opened, config.algorithm.threads or comm.this_machine().threads, 0))


def _ratio(seconds: dict[str, list[float]]) -> float:
    """The median of the ratios within a round."""
    return statistics.median(cover / rows for cover, rows in zip(seconds["cover"], seconds["rows"], strict=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
