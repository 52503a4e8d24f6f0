"""Messages arrive whole, are counted, and a loss may be split over ranks; options are checked."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gnnloom.storage.errors import InputError
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.arguments import parse_arguments
from support.mpi import run_program


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict:
    return run_program(3, "messages", tmp_path_factory.mktemp("messages"), {})


def test_messages_beyond_the_largest_count_go_in_pieces(found):
    assert found["pieces"]["received"]
    assert found["pieces"]["total"] == [3.0 * number for number in range(10)]


def test_messages_and_bytes_are_counted_as_documented(found):
    # 3 ranks send 40 bytes in 3 pieces each; a ring all-reduce of 80 bytes sends 2 * (3 - 1) * 80 in all.
    assert found["pieces"]["counts"] == [120, 9, 320]


def test_collectives_move_uneven_shares_whole_or_in_pieces_and_are_counted_as_rings(found):
    for one in found["collectives"]:
        assert one["same"]
        # 128 bytes, g = 3: g - 1 times in all, in g (g - 1) messages, or g - 1 of a chain.
        assert one["counts"] == [256, 6, 256, 6, 256, 2]


def test_cross_entropy_over_split_rows_equals_torch_and_leaves_the_labels(found):
    assert found["loss"]["loss"][0] == pytest.approx(found["loss"]["loss"][1], rel=1e-13)
    assert found["loss"]["gradient"] < 1e-14
    assert found["loss"]["predicted"]
    assert found["loss"]["label"] == [0, 6, -1, 3, 2]


def test_binary_cross_entropy_over_split_columns_equals_torch(found):
    assert found["binary"]["loss"][0] == pytest.approx(found["binary"]["loss"][1], rel=1e-13)
    assert found["binary"]["gradient"] < 1e-14


def test_options_by_hand_equal_a_configuration():
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
def test_wrong_options_are_named(options):
    name = next(iter(options))
    with pytest.raises(InputError, match=name):
        TrainConfig.from_json({"catalog": "c", "dataset": "cora", **options})


def test_runs_are_named_by_what_decides_them():
    config = TrainConfig(catalog="c", dataset="cora", ranks=4)
    assert config.run_name.startswith("gcn-p2p-4-")
    longer = TrainConfig(catalog="elsewhere", dataset="cora", ranks=4, epochs=7)
    assert longer.run_name == config.run_name
    assert TrainConfig(catalog="c", dataset="cora", ranks=4, lr=0.5).run_name != config.run_name


def test_what_starts_the_ranks_loads_neither_torch_nor_mpi():
    program = "import sys, gnnloom.trainer.job.launch; print({'torch', 'mpi4py'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
