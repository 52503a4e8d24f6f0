"""Options of a training run: by hand or from a file, checked, and the source of the run's name."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from gnnloom.storage.errors import InputError
from gnnloom.trainer.config.train_config import PredictConfig, TrainConfig
from gnnloom.trainer.job.arguments import parse_arguments


def test_options_by_hand_equal_a_configuration() -> None:
    job = parse_arguments(["--catalog", "c", "cora", "--parts", "4", "--hidden", "16,8", "--lr", "0.5", "--no-bias"])
    assert job.config == TrainConfig(catalog="c", dataset="cora", ranks=4, hidden=(16, 8), lr=0.5, bias=False)
    assert TrainConfig.from_json(job.config.to_json()) == job.config
    job = parse_arguments(["predict", "--catalog", "c", "cora", "--run", "x", "--embeddings"])
    assert job.config == PredictConfig(catalog="c", dataset="cora", run="x", embeddings=True)


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
        TrainConfig.from_json({"catalog": "c", "dataset": "cora", **options})


def test_a_run_is_named_after_what_determines_its_result() -> None:
    config = TrainConfig(catalog="c", dataset="cora", ranks=4)
    assert config.run_name.startswith("gcn-p2p-4-")
    longer = TrainConfig(catalog="elsewhere", dataset="cora", ranks=4, epochs=7)
    assert longer.run_name == config.run_name
    assert TrainConfig(catalog="c", dataset="cora", ranks=4, lr=0.5).run_name != config.run_name


def test_the_launcher_loads_neither_torch_nor_mpi() -> None:
    program = "import sys, gnnloom.trainer.job.launch; print({'torch', 'mpi4py'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
