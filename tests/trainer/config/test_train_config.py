"""Configurations are checked where they are built, and decide the names of runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gnnloom.storage.errors import InputError
from gnnloom.storage.option import options_of
from gnnloom.trainer.config.algorithm_config import AlgorithmConfig
from gnnloom.trainer.config.fields import Config
from gnnloom.trainer.config.model_config import ModelConfig
from gnnloom.trainer.config.optimization_config import OptimizationConfig
from gnnloom.trainer.config.run_config import DataConfig, RunConfig
from gnnloom.trainer.config.train_config import TrainConfig


def config(**options: Any) -> TrainConfig:
    return TrainConfig.of(**{"catalog": "c", "dataset": "cora", "ranks": 4, **options})


def test_a_stored_configuration_has_every_field_and_is_read_again() -> None:
    found = config(algorithm="tensor3d", grid=(2, 1, 2), gradient_product="transposed")
    content = json.loads(json.dumps(found.to_json()))
    assert list(content) == list(options_of(TrainConfig))
    assert TrainConfig.of(**content) == found


@pytest.mark.parametrize(
    ("options", "name", "name_with_shards"),
    [
        ({}, "gcn-p2p-4-793d9e55", "gcn-p2p-4-18586b78"),
        (
            {"model": "sage", "algorithm": "summa", "grid": (2, 2), "lr": 0.1},
            "sage-summa-2x2-024d2ec3",
            "sage-summa-4-02048810",
        ),
    ],
)
def test_names_of_runs_are_part_of_the_format(options: dict[str, Any], name: str, name_with_shards: str) -> None:
    given = config(**options)
    assert given.run_name == name
    assert given.name_with_shards("abc123") == name_with_shards
    assert given.with_options(shards="abc123").name_with_shards("abc123") == name_with_shards
    assert given.name_with_shards("other") != name_with_shards
    assert config(run="mine").name_with_shards("abc123") == config(run="mine").run_name == "mine"


def test_options_that_do_not_decide_the_result_do_not_change_the_name() -> None:
    same = {"gradient_product": "measured", "summa_width": 5, "epochs": 7, "threads": 2, "profile": True}
    assert config(**same).run_name == config().run_name
    assert config(seed=1).run_name != config().run_name
    assert config(lr=0.5).changes_since(config()) == ["lr 0.01 (now 0.5)"]
    assert config(**same).changes_since(config()) == []


def test_options_that_came_later_change_the_name_only_if_they_are_given() -> None:
    assert config(embed=0).run_name == config().run_name != config(embed=4).run_name
    for before, after in ((0, 4), (4, 0), (4, 8)):
        changes = [f"embed {before} (now {after})"]
        assert config(embed=after).changes_since(config(embed=before)) == changes


def test_options_of_other_packages_are_named() -> None:
    with pytest.raises(InputError, match="algorithm_options 'toy=1': "):
        config(algorithm_options=("toy=1",))


@pytest.mark.parametrize(
    ("component", "options", "said"),
    [
        (DataConfig, {"catalog": "c", "dataset": "../cora"}, "dataset"),
        (
            DataConfig,
            {"catalog": "c", "dataset": "cora", "feature_norm": "l2"},
            "feature_norm 'l2': expected one of auto",
        ),
        (AlgorithmConfig, {"ranks": 6, "algorithm": "summa", "grid": (2, 2)}, "grid 2x2"),
        (AlgorithmConfig, {"threads": 5000}, "threads 5000: expected at most 4096"),
        (AlgorithmConfig, {"grid": ("a",)}, "grid .*: expected integers"),
        (ModelConfig, {"hidden": (8, 0)}, "hidden 0: expected at least 1"),
        (ModelConfig, {"hidden": (8, 1 << 62)}, f"hidden {1 << 62}: expected at most {1 << 20}"),
        (ModelConfig, {"model": "gat", "hidden": (9,), "heads": 2}, "heads 2"),
        (ModelConfig, {"model": "sage", "normalization": "symmetric"}, "normalization 'symmetric'"),
        (OptimizationConfig, {"lr": float("inf")}, "lr inf"),
        (OptimizationConfig, {"epochs": True}, "epochs True: expected int"),
        (RunConfig, {"run": "../run"}, "run"),
        (RunConfig, {"seed": 2**63}, r"seed 9223372036854775808: expected at most 2\^63 - 1"),
    ],
)
def test_every_component_checks_itself(component: type[Config], options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        component.of(**options)


def test_unknown_and_missing_fields_are_named() -> None:
    with pytest.raises(InputError, match=r"unknown fields \['color'\], missing fields \['dataset'\]"):
        TrainConfig.of(catalog="c", color="red")


@pytest.mark.parametrize(
    "options",
    [
        {"lr": "fast"},
        {"lr": float("nan")},
        {"dropout": 1.0},
        {"epochs": 0},
        {"hidden": (8, -1)},
        {"hidden": (8.5,)},
        {"algorithm": "magic"},
        {"dataset": "../secret"},
        {"run": "../run"},
        {"seed": -1},
        {"ranks": True},
        {"color": "red"},
    ],
)
def test_errors_name_the_wrong_option(options: dict[str, Any]) -> None:
    name = next(iter(options))
    with pytest.raises(InputError, match=name):
        TrainConfig.of(**{"catalog": "c", "dataset": "cora", **options})
