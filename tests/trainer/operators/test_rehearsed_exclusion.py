"""A step that excludes edges is rehearsed on shapes alone, and takes the memory that a real one takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gnnloom.storage import Catalog
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.unconnected import UnconnectedRank
from gnnloom.trainer.data.open_shards import OwnRowShard, SharedGridShards
from gnnloom.trainer.kernels.dispatch import Unperformed, Unwritten, place_without_values
from gnnloom.trainer.operators.exclusion import ExcludingOperator
from gnnloom.trainer.operators.grid_adjacency import GridAdjacency
from gnnloom.trainer.operators.operator import LayerPlan
from gnnloom.trainer.operators.p2p import PointToPoint
from gnnloom.trainer.operators.summa import Summa
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.training.rehearsal.unread import unread
from gnnloom.trainer.training.rehearsal.unread_targets import StatedPairs
from support.gradients import backward
from support.lone import LoneCommunicator
from support.problems import Problem, problem
from support.target_pairs import ListedPairs

PLAN = LayerPlan((5, 7, 5), (True, False), input_needs_gradient=True)
DIM = 6


def a_tenth(numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.equal(numbers % 10, 3)


class Unreadable(StatedPairs):
    """Pairs that nobody may read."""

    def __init__(self, num_pairs: int, *, symmetric: bool) -> None:
        self.num_pairs, self.symmetric, self.num_entries = num_pairs, symmetric, num_pairs * (1 + symmetric)

    def read(self, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        raise AssertionError("a rehearsal reads no pairs")


def step(operator: ExcludingOperator, chosen: Any) -> None:
    operator.exclude(chosen)
    for layer in range(PLAN.num_layers):
        source, target = operator.product_layouts(layer)
        features = torch.zeros(source.num_rows, DIM).requires_grad_()
        found = operator.propagate(features, layer)
        backward(found, torch.zeros(target.num_rows, DIM))


def build(given: Problem, algorithm: str, catalog: Catalog, place: Place, memory: Unwritten | None) -> Any:
    """An operator of one rank, over shards that are read, or that are not if there is a memory."""
    comm = LoneCommunicator() if memory is None else UnconnectedRank(0, 1)
    if algorithm == "p2p":
        opened: Any = OwnRowShard(catalog[given.name].row_shards(parts=1).shard(0))
        shard: Any = opened if memory is None else unread(opened, 0, memory)
        return PointToPoint(comm, shard.shard, "symmetric", place)
    opened = SharedGridShards(catalog[given.name].grid_shards(), ReadCounter())
    shards: Any = (opened if memory is None else unread(opened, 0, memory)).shards
    grid = ProcessGrid(comm, {"row": 1, "column": 1}, place)
    return Summa(grid, GridAdjacency(shards, "symmetric", place), PLAN)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    return Catalog(tmp_path_factory.mktemp("rehearsed") / "catalog")


@pytest.fixture(scope="module", params=["directed", "undirected", "weighted"])
def given(request: pytest.FixtureRequest, catalog: Catalog) -> Problem:
    name, n, nnz = request.param, 3000, 120_000
    found = problem(f"large-{name}", n, nnz, symmetric=name == "undirected", weighted=name == "weighted")
    found.store_grid(catalog, "single", grid=(2, 2))
    found.store(catalog, 1)
    return found


@pytest.mark.parametrize("algorithm", ["p2p", "summa"])
def test_the_memory_of_a_step_that_excludes_edges_is_that_of_its_arrays(
    given: Problem, catalog: Catalog, algorithm: str
) -> None:
    pairs = ListedPairs.of(given.adjacency, 2, symmetric=given.symmetric, weighted=given.weighted)
    real = build(given, algorithm, catalog, Place(), None)
    real.prepare_targets(pairs)
    memory = Unwritten(place_without_values())
    with memory, Unperformed(memory):
        operator = build(given, algorithm, catalog, memory.place, memory)
        before = memory.held
        operator.prepare_targets(Unreadable(pairs.num_pairs, symmetric=given.symmetric))
        held = memory.held - before
        step(operator, a_tenth)
        step(operator, None)
    targets = {id(each): each for each in _targets(real)}.values()
    expected = sum(array.nbytes for each in targets for array in vars(each).values() if isinstance(array, np.ndarray))
    # Degrees are kept, too. Some of the pairs are no edges, or loops.
    assert abs(held - expected) < 0.1 * expected + 64 * 3000


def _targets(operator: Any) -> list[Any]:
    if isinstance(operator, PointToPoint):
        return list(operator._targets)
    return [*operator._targets.values(), *operator._degree_targets.values()]


def test_attention_without_some_edges_is_rehearsed_with_the_memory_of_its_pattern(
    given: Problem, catalog: Catalog
) -> None:
    memory = Unwritten(place_without_values())
    with memory, Unperformed(memory):
        operator = build(given, "p2p", catalog, memory.place, memory)
        operator.prepare_targets(Unreadable(1000, symmetric=given.symmetric))
        before = memory.held
        operator.exclude(a_tenth)
        operator.neighbors(0).attention(0.2)
        # The pattern and its transpose, with column ids of four bytes.
        assert memory.held - before >= 2 * 4 * given.adjacency.nnz
        operator.exclude(None)
        assert memory.held - before < given.adjacency.nnz


def test_many_pairs_are_rehearsed_without_their_memory(given: Problem, catalog: Catalog, tmp_path: Path) -> None:
    memory = Unwritten(place_without_values())
    with memory, Unperformed(memory):
        operator = build(given, "p2p", catalog, memory.place, memory)
        operator.prepare_targets(Unreadable(10**9, symmetric=given.symmetric))
        step(operator, a_tenth)
    assert memory.peak > 20 * 10**9
