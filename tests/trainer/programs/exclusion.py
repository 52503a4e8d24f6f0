"""Multiplies with the adjacency and its transpose while steps exclude edges, on as many ranks as each case asks for.

Rank 0 writes the whole results of every layer and step, and the bytes and messages of all ranks.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from mpi4py import MPI
from numpy.typing import NDArray

from gnnloom.storage.catalog import Catalog
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.trainer.algorithms.algorithm import OperatorContext
from gnnloom.trainer.algorithms.registry import ALGORITHMS
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.mpi import MpiCommunicator
from gnnloom.trainer.data.open_shards import ShardRequest
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.operators.exclusion import ExcludingOperator
from gnnloom.trainer.operators.operator import LayerPlan
from gnnloom.trainer.place.place import Place
from support.gradients import backward
from support.target_pairs import ListedPairs, Numbers
from support.waiting import sleep_between_looks


def gathered(comm: Communicator, block: torch.Tensor, layout: Layout, shape: tuple[int, int]) -> Any:
    """The whole matrix on rank 0, of which every rank has a block; copies must be equal."""
    mine = layout.vertex, layout.columns(shape[1]), block.detach().double().numpy()
    blocks = MPI.COMM_WORLD.Split(0, comm.rank).gather(mine)
    whole = np.full(shape, np.nan)
    for vertex, columns, rows in blocks or ():
        before = whole[vertex, columns]
        assert np.array_equal(before, np.where(np.isnan(before), np.nan, rows), equal_nan=True)
        whole[vertex, columns] = rows
    return whole.tolist()


def piece(matrix: NDArray[np.float64], layout: Layout, dtype: torch.dtype) -> torch.Tensor:
    columns = layout.columns(matrix.shape[1])
    return torch.tensor(matrix[layout.vertex][:, columns], dtype=dtype).contiguous()


def build(comm: Communicator, case: dict[str, Any]) -> Any:
    algorithm = ALGORITHMS[case["algorithm"]]
    dataset, counter = Catalog(case["catalog"]).dataset(case["dataset"]), ReadCounter()
    request = ShardRequest(
        algorithm=algorithm.name,
        ranks=comm.size,
        permutation=case["permutation"],
        streams_adjacency=case["on_disk"],
    )
    options = {name: option.default for name, option in algorithm.options.items()} | case["options"]
    context = OperatorContext(
        comm=comm,
        axes=algorithm.settled_grid(tuple(case["grid"]), comm.size),
        shards=algorithm.reads.open(dataset, request, comm.rank, comm.size, counter),
        normalization=case["normalization"],
        place=Place(getattr(torch, case["dtype"])),
        plan=LayerPlan((5, 7, 6, 5), (True, False, True), input_needs_gradient=True),
        differentiates=True,
        counter=counter,
        options=options,
    )
    return algorithm.build(context)


def run(comm: Communicator, case: dict[str, Any]) -> dict[str, Any]:
    operator = build(comm, case)
    assert isinstance(operator, ExcludingOperator)
    pairs = ListedPairs(np.array(case["pair"]), np.array(case["weight"]), case["symmetric"])
    try:
        operator.prepare_targets(pairs)
    except GnnloomError as error:
        return {"error": str(error)}
    features, gradient = np.array(case["features"]), np.array(case["gradient"])
    steps = []
    for chosen in case["steps"]:
        operator.exclude(None if chosen is None else Numbers(np.array(chosen, np.int64)))
        layers = []
        with comm.traffic.recording() as counts:
            for layer in range(3):
                source, target = operator.product_layouts(layer)
                given = piece(features, source, operator.grid.place.feature_dtype).requires_grad_()
                found = operator.propagate(given, layer)
                backward(found, piece(gradient, target, found.dtype))
                assert given.grad is not None
                layers.append(
                    [
                        gathered(comm, found, target, features.shape),
                        gathered(comm, given.grad, source, features.shape),
                    ]
                )
        figures = [sum(counts.bytes.values()), sum(counts.messages.values())]
        steps.append({"layers": layers, "traffic": comm.gather_numbers(figures).sum(0).tolist()})
    return {"steps": steps}


def main(given: str, result: str) -> None:
    sleep_between_looks()
    # Several rounds of reading.
    patch("gnnloom.trainer.data.target_edges._PAIRS_READ", 7).start()
    world = MpiCommunicator(MPI.COMM_WORLD)
    cases = json.loads(Path(given).read_text())
    results = [run(world, case) for case in cases]
    if world.rank == 0:
        Path(result).write_text(json.dumps(results))


main(*sys.argv[1:])
