"""Limits on the weight of parts, and repairs of parts that are too heavy or empty."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnnloom.pipeline.partition.measure.balance import (
    asked_limit,
    fill_empty_parts,
    heaviest_allowed,
    native_imbalance,
    repair_balance,
)
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.part_files import fill_empty_from_files
from gnnloom.pipeline.partition.multilevel.pieces import store_vector
from gnnloom.pipeline.partition.partitioner import LevelSteps
from gnnloom.storage.disk.numpy_files import map_array
from support.covering import examples
from support.twice import TwiceCluster


@settings(deadline=None)
@given(
    weight=st.lists(st.integers(1, 1 << 40), min_size=1, max_size=50),
    parts=st.integers(1, 50),
    imbalance=st.floats(0, 2),
)
def test_the_native_imbalance_gives_the_limit_of_every_part(weight: list[int], parts: int, imbalance: float) -> None:
    weights = np.array(weight, dtype=np.int64)
    average = weights.sum() / parts
    native_limit = int((1 + native_imbalance(weights, parts, imbalance)) * np.ceil(average))
    assert native_limit == asked_limit(int(weights.sum()), parts, imbalance)
    assert average <= native_limit <= max((1 + imbalance) * average, np.ceil(average)) * (1 + 1e-12)


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=10, max_size=40))
def test_empty_parts_are_filled_and_no_other_is_emptied(given_parts: list[int]) -> None:
    part = np.array(given_parts, dtype=np.int32)
    weight = np.arange(len(part))[::-1].copy()
    before = part.copy()
    moved = fill_empty_parts(part, weight, 10)
    assert set(part.tolist()) == set(range(10))
    assert moved == (before != part).sum() == 10 - len(set(given_parts))


@settings(deadline=None, max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    vertices=st.lists(st.tuples(st.integers(0, 11), st.integers(1, 3)), min_size=12, max_size=40),
    rows=st.integers(1, 15),
)
def test_tasks_fill_empty_parts_with_the_same_vertices(
    tmp_path_factory: pytest.TempPathFactory, vertices: list[tuple[int, int]], rows: int
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    part, weight = np.array(vertices, dtype=np.int64).T
    expected = part.astype(np.int32)
    weight_path, part_path = store_vector(folder / "weight.npy", weight), store_vector(folder / "part.npy", expected)
    stated = DiskHypergraph.stated(len(part), 0, 0, steps=LevelSteps(task_vertices=rows))
    hypergraph = replace(stated, weight_path=weight_path)
    moved = fill_empty_parts(expected, weight, 12)
    assert fill_empty_from_files(hypergraph, part_path, 12, TwiceCluster()) == moved
    np.testing.assert_array_equal(map_array(part_path), expected)


@settings(deadline=None)
@given(
    weight=st.lists(st.integers(1, 20), min_size=8, max_size=60),
    parts=st.integers(1, 6),
    imbalance=st.floats(0, 1),
    seed=st.integers(0, 10**6),
)
def test_balance_is_repaired_if_light_vertices_allow_it(
    weight: list[int], parts: int, imbalance: float, seed: int
) -> None:
    weights = np.array(weight, dtype=np.int64)
    part = np.random.default_rng(seed).integers(0, parts, len(weights)).astype(np.int32)
    before = part.copy()
    limit = heaviest_allowed(weights, parts, imbalance)
    load = np.bincount(part, weights=weights, minlength=parts)
    moved = repair_balance(part, weights, parts, imbalance)
    after = np.bincount(part, weights=weights, minlength=parts)
    assert limit >= max(weights.max(), weights.sum() / parts)
    assert moved == (before != part).sum() or moved > 0
    assert (after <= np.maximum(load, limit)).all()
    assert ((after > 0) >= (load > 0)).all()
    if imbalance >= 0.99:
        assert after.max() <= max(limit, weights.sum() / parts + weights.max())


def test_vertices_are_exchanged_where_none_fits() -> None:
    part, weight = np.array([0, 0, 1, 1], np.int32), np.array([6, 5, 5, 4])
    assert repair_balance(part, weight, 2, 0) == 2
    assert np.bincount(part, weight).tolist() == [10, 10]
    assert sorted(weight[part == part[0]]) == [4, 6]
