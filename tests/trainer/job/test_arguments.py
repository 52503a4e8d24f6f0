"""The command line of a rank has an option for every field."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gnnloom.storage.disk.files import write_json
from gnnloom.storage.errors import InputError
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.arguments import parse_arguments

GIVEN = ["--catalog", "c", "cora"]


def config(**options: object) -> TrainConfig:
    return TrainConfig.of(catalog="c", dataset="cora", **options)


def test_options_are_fields_of_the_configuration() -> None:
    arguments = [*GIVEN, "--parts", "4", "--hidden", "16,8", "--lr", "0.5", "--no-bias", "--grid", "2x2"]
    job = parse_arguments([*arguments, "--algorithm", "summa", "--summa-width", "9", "--result", "result.json"])
    assert job.config == config(
        ranks=4, hidden=(16, 8), lr=0.5, bias=False, grid=(2, 2), algorithm="summa", summa_width=9
    )
    assert job.result == Path("result.json")


def test_options_override_the_file(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", config(epochs=3, lr=0.5).to_json())
    assert parse_arguments([str(tmp_path / "config.json"), "--epochs", "4"]).config == config(epochs=4, lr=0.5)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--epochs", "many"], "--epochs: invalid int value: 'many'"),
        (["--algorithm", "magic"], "invalid choice: 'magic'"),
        (["--color", "red"], "unrecognized arguments: --color red"),
        (["--seed", "-1"], "seed -1: expected at least 0"),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_arguments([*GIVEN, *arguments])


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.json:"):
        parse_arguments([str(tmp_path / "absent.json")])


def test_the_launcher_loads_neither_torch_nor_mpi() -> None:
    program = "import sys, gnnloom.trainer.job.launch; print({'torch', 'mpi4py'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
