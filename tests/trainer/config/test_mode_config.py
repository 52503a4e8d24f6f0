"""Modes are chosen and checked where the configuration is built; each mode gives a run another name."""

from __future__ import annotations

from typing import Any

import pytest

from gnnloom.storage.errors import InputError
from gnnloom.trainer.config.train_config import TrainConfig, command_line
from gnnloom.trainer.job.arguments import parse_arguments
from gnnloom.trainer.modes.epochs.mode import Mode
from gnnloom.trainer.modes.registry import MODES


def config(**options: Any) -> TrainConfig:
    return TrainConfig.of(**{"catalog": "c", "dataset": "web", "ranks": 4, **options})


def test_the_mode_is_part_of_the_name() -> None:
    assert config(mode="full").run_name == config().run_name
    assert config(mode="subgraph").run_name != config(mode="minibatch").run_name != config().run_name


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_size": 7}, "batch_size: mode full has no such option, only subgraph, minibatch"),
        ({"mode": "minibatch", "sampler": "walk"}, "sampler: mode minibatch has no such option, only subgraph"),
        ({"mode": "subgraph", "walk_length": 3}, "walk_length: sampler frontier has no such option, only walk"),
        (
            {"mode": "subgraph", "algorithm": "summa", "grid": (2, 2)},
            "mode 'subgraph': algorithm summa does not .*; choose --algorithm p2p",
        ),
        (
            {"mode": "minibatch", "algorithm": "broadcast"},
            "mode 'minibatch': algorithm broadcast does not .*; choose --algorithm p2p",
        ),
        ({"mode": "subgraph", "train_features": True}, "train_features: mode subgraph does not form the gradient"),
        (
            {"mode": "minibatch", "skip_input_gradient": False},
            "skip_input_gradient False: mode minibatch does not form the",
        ),
        ({"mode": "magic"}, "mode 'magic': expected one of full, subgraph, minibatch"),
    ],
)
def test_what_would_do_nothing_or_cannot_work_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        config(**options)


def test_a_word_may_stand_for_the_number_of_counted_batches() -> None:
    counted = config(mode="subgraph", presamples="auto")
    assert "--presamples auto" in command_line(counted)
    assert TrainConfig.of(**counted.to_json()) == TrainConfig.of(**counted.to_json() | {"presamples": "auto"})
    given = ["--catalog", "c", "--dataset", "web", "--ranks", "4", "--mode", "subgraph", "--presamples"]
    assert parse_arguments([*given, "auto"]).config == counted
    assert parse_arguments([*given, "200"]).config == config(mode="subgraph", presamples=200)
    with pytest.raises(InputError, match="presamples 'many': expected int"):
        config(mode="subgraph", presamples="many")


def test_the_number_of_ranks_decides_only_where_it_chooses_the_batches() -> None:
    assert config(mode="minibatch", ranks=2).changes_since(config(mode="minibatch")) == []
    assert config(mode="subgraph", ranks=2).changes_since(config(mode="subgraph")) == ["ranks 4 (now 2)"]
    assert config(mode="subgraph", pool=9, sampler_threads=0).changes_since(config(mode="subgraph")) == []


def test_sampled_modes_keep_no_product_of_all_features() -> None:
    assert config().input_is_cached
    sampled = {name: "mlp" if kind.reads_rows else "gcn" for name, kind in MODES.items() if kind.is_sampled}
    assert not any(config(mode=name, model=model).input_is_cached for name, model in sampled.items())


def test_every_mode_has_a_class() -> None:
    assert all(issubclass(kind.load(), Mode) for kind in MODES.values())
