"""Entries of pairs are chosen once each, and degrees without them are exact."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.data.target_edges import Entries, PairsOfStep, TargetEntries, remaining_degree
from gnnloom.trainer.operators.grid_adjacency import GridAdjacency
from gnnloom.trainer.operators.operator import LayerPlan
from gnnloom.trainer.operators.p2p import PointToPoint
from gnnloom.trainer.operators.summa import Summa
from gnnloom.trainer.place.place import Place
from support.lone import LoneCommunicator
from support.problems import problem
from support.target_pairs import ListedPairs


def below(bound: int) -> Callable[[NDArray[np.int64]], NDArray[np.bool_]]:
    return lambda numbers: np.less(numbers, bound)


def test_an_entry_of_several_chosen_pairs_is_excluded_once_from_each_block() -> None:
    # Pairs 0 and 3 stand for the same entry; the last entry of block 0 and the first of block 1 have the same place.
    row, column, number = np.array([[1, 0, 1, 1], [2, 0, 2, 2], [0, 1, 2, 3]])
    entries = Entries(row, column, number, np.array([4.0, 5, 6, 4]))
    targets = TargetEntries(entries, np.array([0, 0, 1, 0]), [(2, 3), (2, 4)])
    for bound, rows in ((0, ([], [])), (1, ([1], [])), (2, ([0, 1], [])), (3, ([0, 1], [1])), (4, ([0, 1], [1]))):
        first, second = targets.chosen(below(bound))
        assert (first.row.tolist(), second.row.tolist()) == rows
        assert (first.num_columns, second.num_columns) == (3, 4)
    assert first.row_sums().tolist() == [5, 4]
    assert second.row_sums().tolist() == [0, 6]
    # Without the first of the two, the second one stands for the entry.
    first, _ = targets.chosen(lambda numbers: np.equal(numbers, 3))
    assert first.row_sums().tolist() == [0, 4]


@pytest.mark.parametrize("apart", [1, 1000])
def test_steps_of_an_epoch_take_what_a_choice_takes_and_look_up_every_pair_once(apart: int) -> None:
    rng = np.random.default_rng(0)
    row, column, number = (rng.integers(0, bound, 300) for bound in (20, 30, 90))
    # Of few ranks, each has entries of most pairs; of many, each has few.
    number = 7 + apart * number
    targets = TargetEntries(Entries(row, column, number, None), rng.integers(0, 2, 300), [(20, 30), (20, 30)])
    asked = list[int]()

    def in_order(order: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        asked.extend(numbers.tolist())
        return order[(numbers - 7) // apart]

    for num_steps in (3, 90, 300):
        step_of = partial(in_order, rng.permutation(300) % num_steps)
        taken = [targets.chosen(PairsOfStep(step_of, step, num_steps)) for step in (1, 0, 2)]
        assert sorted(asked) == np.unique(number).tolist()
        for step, blocks in zip((1, 0, 2), taken, strict=True):
            expected = targets.chosen(partial(PairsOfStep.__call__, PairsOfStep(step_of, step, num_steps)))
            for mine, other in zip(blocks, expected, strict=True):
                assert (mine.row.tolist(), mine.column.tolist()) == (other.row.tolist(), other.column.tolist())
        asked.clear()


def test_a_row_whose_entries_are_all_excluded_has_degree_zero_whatever_was_rounded() -> None:
    weight = np.array([3e8, 0.1, 7e-3], np.float32).astype(np.float64)
    degree = np.array([weight.sum(), weight.sum(), 5.0])
    excluded = np.array([weight[::-1].sum() * (1 + 2e-16), weight[0], 2.0])
    rest = remaining_degree(degree, excluded)
    assert rest[0] == 0
    assert rest[1] == pytest.approx(weight[1:].sum(), rel=1e-5)
    assert rest[2] == 3


def test_what_a_step_cannot_exclude_is_an_error(tmp_path: Path) -> None:
    given = problem("weighted", 45, 200, symmetric=False, weighted=True)
    # The rest of a row that loses its only positive weight.
    start, stop = given.adjacency.indptr[:2]
    given.adjacency.data[start:stop] = -0.125
    given.adjacency.data[start] = 8
    shard = given.store(Catalog(tmp_path), 1).row_shards(parts=1).shard(0)
    operator = PointToPoint(LoneCommunicator(), shard, "symmetric", Place())
    with pytest.raises(ValueError, match="prepare_targets"):
        operator.exclude(below(1))
    operator.exclude(None)
    source = int(given.adjacency.indices[start])
    operator.prepare_targets(ListedPairs(np.array([[source, 0]]), np.array([8.0]), symmetric=False))
    assert stop - start > 1
    with pytest.raises(InputError, match="negative or infinite sum"):
        operator.exclude(below(1))
    operator.exclude(below(0))
    operator.release(0)
    operator.exclude(None)
    with pytest.raises(ValueError, match="product is kept"):
        operator.exclude(below(0))


def test_a_grid_operator_that_has_kept_a_product_excludes_nothing(tmp_path: Path) -> None:
    given = problem("undirected", 45, 200, symmetric=True)
    shards = given.store_grid(Catalog(tmp_path), "double", grid=(2, 2)).grid_shards()
    grid = ProcessGrid(LoneCommunicator(), {"row": 1, "column": 1}, Place())
    plan = LayerPlan((5, 7, 3), (True, False))
    operator = Summa(grid, GridAdjacency(shards, "symmetric", grid.place), plan)
    operator.prepare_targets(ListedPairs.of(given.adjacency, 1, symmetric=True, weighted=False))
    operator.exclude(below(9))
    operator.exclude(None)
    operator.release(0)
    with pytest.raises(ValueError, match="product is kept"):
        operator.exclude(below(9))
