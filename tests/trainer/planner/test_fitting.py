"""The options that a memory leaves: the cheapest ones that fit, compared with the forecasts of all of them."""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.errors import BudgetError, InputError
from gnnloom.trainer.config.continuation import configure
from gnnloom.trainer.planner.fitting import SMALLER, settle_memory
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.rehearsal.projection import project_training
from support.lone import LoneCommunicator
from support.problems import problem
from support.sampled import store_for_sampling

Fields = dict[str, Any]


@pytest.fixture(scope="module")
def fields(tmp_path_factory: pytest.TempPathFactory) -> Fields:
    catalog = Catalog(tmp_path_factory.mktemp("fitting"))
    given = problem("web", 20_000, 60_000, symmetric=True)
    wide = replace(given, feature=np.random.default_rng(0).standard_normal((20_000, 200)).astype(np.float32))
    store_for_sampling(catalog, wide, 1, 2)
    return {"catalog": str(catalog.root), "dataset": "web", "hidden": [40, 40], "epochs": 2}


def taken(fields: Fields) -> int:
    """What the busiest rank takes with the files that it maps, all of which are small here."""
    found = project_training(configure(fields))
    return max(found.peak_memory) + found.mapped_bytes


def chosen(fields: Fields, memory: int, **how: Any) -> dict[str, Any]:
    """The options that a memory changes."""
    found = settle_memory(fields, memory, **how)
    return {name: found[name] for name in SMALLER if found.get(name) == SMALLER[name]}


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_cheapest_options_are_chosen_that_fit(fields: Fields, ranks: int) -> None:
    given = {**fields, "ranks": ranks}
    # Those of lower weight before: the number of a combination in base 2.
    combinations = [
        {name: SMALLER[name] for name, is_smaller in zip(reversed(list(SMALLER)), bits, strict=True) if is_smaller}
        for bits in product((False, True), repeat=len(SMALLER))
    ]
    needed = [taken({**given, **each}) for each in combinations]
    assert len(set(needed)) > 4
    # Forecasts of one training may differ by some bytes.
    for memory in sorted({takes + 64 for takes in needed}):
        expected = next(each for each, takes in zip(combinations, needed, strict=True) if takes <= memory)
        assert chosen(given, memory) == expected
    with pytest.raises(BudgetError, match=r"memory .* a rank takes .* at least, with --"):
        settle_memory(given, min(needed) - 1)


def test_given_options_stay_and_models_without_an_option_do_without(fields: Fields) -> None:
    smallest = taken({**fields, "inputs": "disk", "adjacency": "memory", "recompute": True})
    assert "adjacency" not in chosen({**fields, "adjacency": "memory"}, smallest)
    sage = {**fields, "model": "sage"}
    assert "recompute" not in chosen(sage, taken({**sage, "inputs": "disk"}))
    with pytest.raises(InputError, match="model 'nobody'"):
        settle_memory({**fields, "model": "nobody"}, smallest)


def test_an_evaluation_of_batches_gets_what_is_left(fields: Fields) -> None:
    batches = {**fields, "mode": "neighbor", "fanout": [3, 3, 3], "batch_size": 50, "hidden": [64, 64]}
    on_disk = {**batches, "inputs": "disk", "cache_memory": 0}
    memory = taken({**on_disk, "evaluation_memory": 16 << 20})
    found = settle_memory(on_disk, memory)
    assert found["evaluation_memory"] > 0
    assert taken(found) <= memory < taken({**on_disk, "evaluation_memory": 1 << 30})
    with pytest.raises(BudgetError, match="not even an evaluation in parts fits"):
        settle_memory({**on_disk, "precision": "float32"}, memory - (16 << 20))


@pytest.mark.parametrize("left", [0, 3 << 20, 12 << 20])
def test_frequent_rows_get_half_of_what_the_epochs_leave(fields: Fields, left: int) -> None:
    batches = {**fields, "mode": "neighbor", "fanout": [3, 3, 3], "batch_size": 50, "inputs": "disk"}
    alone = {**batches, "eval_every": 0, "final_eval": False}
    memory = taken({**alone, "cache_memory": 0}) + left
    # With the usual cache, which is larger than all features, it would not fit.
    assert taken(alone) > memory
    found = settle_memory(alone, memory)
    assert found["cache_memory"] == left // 2
    assert taken(found) <= memory
    assert settle_memory({**alone, "cache_memory": 1 << 20}, memory + (64 << 20))["cache_memory"] == 1 << 20
    assert "cache_memory" not in settle_memory({**alone, "inputs": "memory"}, 1 << 30)


def test_a_run_keeps_what_decides_its_result(fields: Fields, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    given = {**fields, "run": "kept"}
    usual, smallest = taken(given), taken({**given, **SMALLER})
    with caplog.at_level(logging.WARNING):
        first = settle_memory(given, smallest)
    assert first["precision"] == "bf16"
    assert "--precision bf16, with which a rank takes" in caplog.text
    train(LoneCommunicator(), configure({**first, "epochs": 1}))
    # It goes on with bf16, whatever fits now, and with its features wherever they fit.
    assert configure(settle_memory(given, usual)).model.precision == "bf16"
    assert configure(settle_memory(given, usual)).mode.inputs == "memory"
    assert configure(settle_memory(given, smallest)) == configure(first)
    assert configure(settle_memory(given, usual, restart=True), restart=True).model.precision == "float32"
    train(LoneCommunicator(), configure(first))
    # It has finished: there is nothing to fit.
    assert settle_memory(given, 1) == given
