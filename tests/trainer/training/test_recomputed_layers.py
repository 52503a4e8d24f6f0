"""Hidden layers that are recomputed in the backward pass (`--recompute`): the same training, in less memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.operators import whole_rows
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.rehearsal.projection import project_training
from support.covering import FEW_OR_EVERY
from support.lone import LoneCommunicator
from support.mpi import train_all
from support.problems import problem
from support.tolerance import assert_close

RANKS = (1, 2, 4)
#: Numbers of ranks of every case's runs: each number at least once with dropout or wide layers, or all of them.
FEW: dict[str, tuple[int, ...]] = {
    "first": (1, 4),
    "second": (1, 2),
    "nothing-kept": (1,),
    "no-bias": (2,),
    "adjacency-on-disk": (2,),
    "input-gradient": (1,),
    "half": (2,),
}
EPOCHS = 3
#: The first hidden layer's product is kept and its output multiplied by the next weight; the second layer multiplies
#: with the adjacency first, as its output is wider, and the third by its weight.
CASES: dict[str, dict[str, Any]] = {
    "first": {"hidden": (7, 5)},
    "second": {"hidden": (4, 17), "dropout": 0.3, "input_dropout": False},
    "nothing-kept": {"hidden": (9, 4, 8), "dropout": 0.3},
    "no-bias": {"hidden": (4, 17, 3), "bias": False},
    "adjacency-on-disk": {"hidden": (4, 17), "adjacency": "disk"},
    "input-gradient": {"hidden": (4, 17), "skip_input_gradient": False},
    "half": {"hidden": (4, 17), "precision": "bf16", "dropout": 0.3},
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("recomputed") / "catalog")
    problem("directed", 60, 240, symmetric=False).store(catalog, *RANKS)
    problem("large", 20_000, 40_000, symmetric=True).store(catalog, 1)
    return catalog


def _config(catalog: Catalog, ranks: int, name: str, *, recompute: bool, **options: Any) -> TrainConfig:
    fixed: dict[str, Any] = {"dataset": "directed", "precision": "float64", "epochs": EPOCHS, "eval_every": 1}
    run = f"{name}-{ranks}-{'formed' if recompute else 'kept'}"
    given = {**fixed, **options, "ranks": ranks, "recompute": recompute, "run": run}
    return TrainConfig.of(catalog=str(catalog.root), threads=1, **given)


@pytest.mark.slow
@pytest.mark.parametrize("every", FEW_OR_EVERY)
def test_losses_are_those_of_layers_that_are_kept(catalog: Catalog, tmp_path: Path, every: bool) -> None:
    cases = [(name, ranks) for name in CASES for ranks in (RANKS if every else FEW[name])]
    configs = [
        _config(catalog, ranks, f"{name}-of-{len(cases)}", recompute=recompute, **CASES[name])
        for name, ranks in cases
        for recompute in (False, True)
    ]
    results = train_all(tmp_path, configs)
    for case, kept, formed in zip(cases, results[::2], results[1::2], strict=True):
        dtype = np.float32 if CASES[case[0]].get("precision") else np.float64
        assert_close(formed["loss"], kept["loss"], steps=EPOCHS, dtype=dtype, message=str(case))
        assert (formed["bytes_sent"], formed["messages_sent"]) == (kept["bytes_sent"], kept["messages_sent"]), case


@pytest.mark.parametrize("name", ["second", "nothing-kept"])
def test_parts_of_any_size_train_alike(catalog: Catalog, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(LoneCommunicator(), _config(catalog, 1, f"{name}-kept", recompute=False, **CASES[name]))
    # Seven rows of 17 numbers, or a few of other widths.
    monkeypatch.setattr(whole_rows, "_FORMED_BYTES", 7 * 17 * 8)
    parts = train(LoneCommunicator(), _config(catalog, 1, f"{name}-parts", recompute=True, **CASES[name]))
    assert_close(parts["loss"], whole["loss"], steps=EPOCHS, dtype=np.float64, message=name)
    assert parts["test_accuracy"] == whole["test_accuracy"]


def test_the_plan_says_what_it_saves(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    # Parts are small beside the rows of this graph too.
    monkeypatch.setattr(whole_rows, "_FORMED_BYTES", 1 << 17)
    config = _config(catalog, 1, "plan", recompute=False, dataset="large", hidden=(32,), precision="float32")
    before, after = (project_training(config.with_options(recompute=each)).workspace_memory for each in (False, True))
    # The output of the hidden layer.
    assert before - after > 0.9 * 20_000 * 32 * 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "sage"}, "recompute: model sage keeps the outputs of its layers; choose gcn"),
        ({"norm": "layer"}, "recompute: with norm 'layer'"),
        ({"hidden": (8, 8), "residual": True}, "recompute: with residual True"),
        ({"algorithm": "summa"}, "recompute: algorithm summa does not .*; choose --algorithm p2p"),
    ],
)
def test_what_keeps_its_layers_is_refused(catalog: Catalog, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        _config(catalog, 1, "refused", recompute=True, **options)
