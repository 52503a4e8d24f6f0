"""Epochs that exclude a tenth of the edges, and epochs that do not, in turn: one rank of bench_exclusion.

python -m mpi4py tests/benchmarks/exclusion_ranks.py CONFIGURATION WIDTH ROUNDS

CONFIGURATION is a training's, as JSON, with algorithm p2p; its shards and its model are used. An epoch is one step of
two layers of WIDTH columns, forward and backward, with Adam; the features' product is not kept, as it changes with what
is excluded. Prints JSON, figures of the busiest rank: medians over the rounds of the seconds of both epochs
(``excluding``, ``whole``), of their processor seconds, and of the seconds that the choice of the pairs takes, which is
longer in the first step of an epoch (``first choice``); medians of the ratios within a round (``ratio``); the peak
memory of each rank.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import defaultdict
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gnnloom.storage import Catalog
from gnnloom.storage.matrix.permutation import KeyedPermutation
from gnnloom.storage.meters import peak_memory
from gnnloom.trainer.comm.mpi import world
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.target_edges import PairsOfStep
from gnnloom.trainer.kernels.dispatch import Dropout
from gnnloom.trainer.models.networks.model import Inputs
from gnnloom.trainer.models.options import ModelOptions
from gnnloom.trainer.models.registry import MODELS
from gnnloom.trainer.operators.p2p import PointToPoint
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.training.state.optimizer import sum_gradients

NORMALIZATION = {"gcn": "symmetric", "sage": "mean", "gin": "none", "gat": "none"}
#: Of how many pairs one is excluded.
SHARE = 10


class GraphPairs:
    """All edges of an undirected graph."""

    symmetric = True

    def __init__(self, dataset: Any) -> None:
        found = []
        for block in dataset.graph().blocks():
            row = np.repeat(np.arange(block.num_rows) + block.row_offset, np.diff(block.indptr))
            upper = block.indices > row
            found.append(np.stack([row[upper], block.indices[upper].astype(np.int64)], 1))
        self._pair = np.concatenate(found)
        self.num_pairs = len(self._pair)
        self.num_entries = 2 * self.num_pairs

    def targets(self, read: Any, state: object) -> Any:
        return read()

    def read(self, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        return self._pair[start:stop], np.ones(stop - start, np.uint8)


def main(content: str, width: str, rounds: str) -> None:
    torch.set_num_threads(1)
    config, comm = TrainConfig.of(**json.loads(content)), world()
    dataset, dim = Catalog(config.data.catalog).dataset(config.data.dataset), int(width)
    shards, place = dataset.row_shards(key=config.data.shards), Place(getattr(torch, config.model.feature_dtype))
    multiplies = config.model.name != "gat"
    operator = PointToPoint(
        comm, shards.shard(comm.rank), NORMALIZATION[config.model.name], place, multiplies=multiplies
    )
    own = {"heads": 4, "negative_slope": 0.2, "attention": "v1"} if config.model.name == "gat" else {}
    options = ModelOptions((dim, dim, dim), own=own)
    model = MODELS[config.model.name].load()(operator, options, Dropout(0.0, 0, place), 0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    started = time.perf_counter()
    pairs = GraphPairs(dataset)
    operator.prepare_targets(pairs)
    step_of = partial(_step_of, KeyedPermutation(pairs.num_pairs, 0))
    # Loads the compiled permutation.
    step_of(np.arange(1))
    found: dict[str, list[float]] = defaultdict(list, {"prepare": [time.perf_counter() - started]})
    generator = torch.Generator().manual_seed(comm.rank)
    shape = operator.layout(0).num_rows, dim
    features, gradient = (torch.randn(shape, generator=generator).to(place.feature_dtype) for _ in range(2))

    def step() -> None:
        model.zero_grad()
        model(Inputs(features)).backward(gradient.to(place.sum_dtype))
        sum_gradients(list(model.parameters()), operator)
        optimizer.step()

    for number in range(int(rounds) + 1):
        for name in ("whole", "excluding"):
            comm.barrier()
            begun, worked = time.perf_counter(), time.process_time()
            operator.exclude(None if name == "whole" else PairsOfStep(step_of, number % SHARE, SHARE))
            chosen = time.perf_counter() - begun
            step()
            worked = time.process_time() - worked
            comm.barrier()
            # The first round touches the memory.
            if number:
                found[name].append(time.perf_counter() - begun)
                found[f"{name} processor"].append(worked)
                found[f"{name} choice"].append(chosen)
            else:
                found[f"{name} first choice"].append(chosen)
    for name in ("", " processor"):
        both = zip(found[f"excluding{name}"], found[f"whole{name}"], strict=True)
        found[f"ratio{name}"] = [excluding / whole for excluding, whole in both]
    medians = {name: statistics.median(seconds) for name, seconds in found.items()}
    figures = comm.gather_numbers([*medians.values(), peak_memory()])
    if comm.rank == 0:
        report = dict(zip(medians, figures[:, :-1].max(0).tolist(), strict=True))
        print(json.dumps(report | {"memory": figures[:, -1].tolist()}))


def _step_of(order: KeyedPermutation, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Random tenths of the pairs, as a training takes them."""
    return order.forward(numbers) * SHARE // order.size


if __name__ == "__main__":
    main(*sys.argv[1:])
