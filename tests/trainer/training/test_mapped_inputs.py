"""Training on the whole graph with the features, or what is kept of them, in a file (`--inputs disk`): same bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.rehearsal.projection import project_training
from support.lone import LoneCommunicator
from support.mpi import train_all
from support.poison import poisoned_memory
from support.problems import problem

RANKS = (1, 2, 4)
EPOCHS = 2
CASES: dict[str, dict[str, Any]] = {
    "kept-product": {},
    "dropped-features": {"dropout": 0.3},
    "transform-first": {"product_order": "transform-first"},
    "scaled-rows": {"feature_norm": "row"},
    "kept-of-features-too": {"model": "sage"},
    "kept-features": {"model": "mlp"},
    "kept-halo": {"model": "gat", "hidden": (8,)},
    "half": {"precision": "bf16", "recompute": True, "adjacency": "disk"},
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("inputs") / "catalog")
    problem("directed", 60, 240, symmetric=False).store(catalog, *RANKS)
    problem("large", 20_000, 40_000, symmetric=True).store(catalog, 1)
    feature = np.random.default_rng(0).standard_normal((60, 150)).astype(np.float32)
    replace(problem("wide", 60, 240, symmetric=False), feature=feature).store(catalog, 1, 2)
    return catalog


def _config(catalog: Catalog, ranks: int, inputs: str, name: str = "run", **options: Any) -> TrainConfig:
    fixed: dict[str, Any] = {"dataset": "directed", "hidden": (7, 5), "epochs": EPOCHS, "eval_every": 1, "threads": 1}
    fixed["run"] = f"{name}-{ranks}-{inputs}"
    return TrainConfig.of(catalog=str(catalog.root), ranks=ranks, inputs=inputs, **{**fixed, **options})


#: Numbers of ranks: all of them for one case; for others, one rank if rows of other ranks are used as in that case.
SOME_RANKS = {"kept-product": RANKS} | dict.fromkeys(("transform-first", "scaled-rows", "kept-features"), (1,))


@pytest.mark.slow
def test_losses_have_the_bits_of_features_in_memory(catalog: Catalog, tmp_path: Path) -> None:
    cases = [(name, ranks) for name in CASES for ranks in SOME_RANKS.get(name, (2,))]
    configs = [
        _config(catalog, ranks, inputs, name, **CASES[name]) for name, ranks in cases for inputs in ("memory", "disk")
    ]
    results = train_all(tmp_path, configs)
    for case, memory, disk in zip(cases, results[::2], results[1::2], strict=True):
        assert disk["loss"] == memory["loss"], case
        assert disk["test_accuracy"] == memory["test_accuracy"], case
    # The files have no name, so nothing is left of them.
    assert not [path for path in catalog["directed"].path.iterdir() if path.is_file() and path.name.startswith("tmp")]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_what_is_kept_of_some_columns_at_a_time_has_the_same_bits(catalog: Catalog, tmp_path: Path, model: str) -> None:
    """Three ranges of columns, the last of which is narrow."""
    cases = [(ranks, inputs) for ranks in (1, 2) for inputs in ("memory", "disk")]
    configs = [
        _config(catalog, ranks, inputs, f"wide-{model}", dataset="wide", model=model, hidden=(8,))
        for ranks, inputs in cases
    ]
    results = train_all(tmp_path, configs)
    for memory, disk in zip(results[::2], results[1::2], strict=True):
        assert disk["loss"] == memory["loss"]


def test_wide_features_are_multiplied_within_the_memory_of_an_epoch(tmp_path: Path) -> None:
    """Rows of 2,000 bytes, of which 256 are multiplied at a time."""
    catalog, wide = Catalog(tmp_path / "catalog"), problem("wide", 20_000, 40_000, symmetric=True)
    replace(wide, feature=np.ones((20_000, 500), np.float32)).store(catalog, 1)
    plan = project_training(_config(catalog, 1, "disk", "plan", dataset="wide"))
    # The product is in a file, and the features are not copied.
    assert plan.mapped_bytes == plan.temporary_bytes == 20_000 * 500 * 4
    assert plan.workspace_memory < plan.mapped_bytes / 2


def test_a_run_goes_on_with_the_features_elsewhere(catalog: Catalog) -> None:
    whole = train(LoneCommunicator(), _config(catalog, 1, "memory", "whole", epochs=4))
    train(LoneCommunicator(), _config(catalog, 1, "memory", epochs=2))
    rest = train(LoneCommunicator(), _config(catalog, 1, "disk", epochs=4, run="run-1-memory"))
    assert rest["loss"] == whole["loss"]


def test_the_plan_counts_them_as_mapped(catalog: Catalog) -> None:
    memory, disk = (
        project_training(_config(catalog, 1, each, "plan", dataset="large", embed=0)) for each in ("memory", "disk")
    )
    width = catalog["large"].row_shards(parts=1).num_features
    assert (memory.mapped_bytes, disk.mapped_bytes) == (0, 20_000 * width * 4)
    assert (memory.temporary_bytes, disk.temporary_bytes) == (0, 20_000 * width * 4)
    assert memory.peak_memory[0] - disk.peak_memory[0] == 20_000 * width * 4


def test_a_forecast_does_not_depend_on_what_memory_held_before(catalog: Catalog) -> None:
    config = _config(catalog, 1, "disk", "plan")
    found = project_training(config)
    with poisoned_memory():
        assert project_training(config) == found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "summa"}, "inputs 'disk': algorithm summa does not .*; choose --algorithm p2p"),
        ({"train_features": True}, "train_features: inputs disk does not form the gradient"),
        ({"skip_input_gradient": False}, "skip_input_gradient False: inputs disk"),
        ({"embed": 4}, "inputs 'disk': embed 4 does not read"),
        ({"mode": "minibatch"}, "inputs"),
    ],
)
def test_what_needs_features_in_memory_is_refused(catalog: Catalog, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        _config(catalog, 1, "disk", **options)
