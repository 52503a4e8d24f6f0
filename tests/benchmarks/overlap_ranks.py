"""How much of the transfer of a large halo is hidden: one of two ranks of bench_algorithms or of a test.

python -m mpi4py tests/benchmarks/overlap_ranks.py CONFIGURATION WIDTH ROUNDS

CONFIGURATION is a training's, as JSON, with two ranks and algorithm p2p; only its shards are used. Every round
exchanges a halo of WIDTH columns four times, after a barrier: alone; with a product that multiplies the whole matrix
and lets messages advance, as training does; with the same product while nothing lets them advance, which is where
MPI would leave a program that posts its messages and waits for them afterwards; and before the product, which waits
for them. Prints JSON: medians over the rounds, of the slower rank, of the seconds in which a rank only waits, and of
those that the whole takes (``... whole``), and ``hidden``, the share of the first that the second lacks.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gnnloom.storage import Catalog
from gnnloom.trainer.comm.communicator import Communicator, Request
from gnnloom.trainer.comm.mpi import MpiCommunicator, world
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.operators.p2p import PointToPoint
from gnnloom.trainer.place.place import Place


class _Silent(MpiCommunicator):
    """Messages advance only while the rank waits for them."""

    def progress(self, requests: object) -> None:
        """Leave them where they are."""


class _Waiting(MpiCommunicator):
    """Messages arrive before the product goes on."""

    def progress(self, requests: Sequence[Request]) -> None:
        self.wait(requests)


def main(content: str, width: str, rounds: str) -> None:
    torch.set_num_threads(1)
    config, comm = TrainConfig.of(**json.loads(content)), world()
    shards = Catalog(config.data.catalog).dataset(config.data.dataset).row_shards(key=config.data.shards)
    operator, silent, waiting = (
        _operator(each, shards, config) for each in (comm, _Silent(comm._comm), _Waiting(comm._comm))
    )
    generator = torch.Generator().manual_seed(comm.rank)
    features = torch.randn(operator.exchange.num_own, int(width), generator=generator).to(operator.place.feature_dtype)
    ways: dict[str, tuple[Communicator, Callable[[], Any]]] = {
        "alone": (comm, lambda: operator.exchange.gather(features, Kind.HALO_FORWARD)),
        "exposed": (comm, lambda: operator.forward_product.multiply(features)),
        "unaided": (silent.exchange.comm, lambda: silent.forward_product.multiply(features)),
        "before": (waiting.exchange.comm, lambda: waiting.forward_product.multiply(features)),
    }
    found: dict[str, list[float]] = defaultdict(list)
    # The first round touches the memory.
    for number in range(int(rounds) + 1):
        for name, (group, act) in ways.items():
            waited, whole = _seconds(group, act)
            if number:
                found[name].append(waited)
                found[f"{name} whole"].append(whole)
    medians = {name: statistics.median(seconds) for name, seconds in found.items()}
    slower = comm.gather_numbers(list(medians.values())).max(0).tolist()
    report: dict[str, float] = dict(zip(medians, slower, strict=True))
    if comm.rank == 0:
        report["hidden"] = 1 - report["exposed"] / report["alone"]
        report["hidden_unaided"] = 1 - report["unaided"] / report["alone"]
        print(json.dumps(report))


def _operator(comm: MpiCommunicator, shards: Any, config: TrainConfig) -> PointToPoint:
    return PointToPoint(comm, shards.shard(comm.rank), "symmetric", Place(getattr(torch, config.model.feature_dtype)))


def _seconds(comm: Communicator, act: Callable[[], Any]) -> tuple[float, float]:
    comm.barrier()
    started = time.perf_counter()
    with comm.traffic.recording() as counts:
        act()
    return counts.exposed, time.perf_counter() - started


if __name__ == "__main__":
    main(*sys.argv[1:])
