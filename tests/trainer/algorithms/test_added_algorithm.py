"""Another package adds an algorithm in one file, and the command line knows it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gnnloom.storage import Catalog
from support.in_process import run_command
from support.plugins import InstalledProgram
from support.problems import problem

TRAIN = ("train", "graph", "--ranks", "2", "--hidden", "4,4", "--epochs", "3", "--precision", "float64", "--json")


class Installed:
    """A catalog with grid shards, and an environment in which the toy is installed."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.catalog = Catalog(folder / "catalog")
        problem("graph", 30, 90, symmetric=False).store_grid(self.catalog, "double", grid=(2, 2))
        self.program = InstalledProgram(environment)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.program.run("--catalog", str(self.catalog.root), *arguments)

    def train(self, *arguments: str) -> dict[str, Any]:
        done = self.run(*TRAIN, *arguments)
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, added_packages: dict[str, str]) -> Iterator[Installed]:
    installed = Installed(tmp_path_factory.mktemp("toy"), added_packages)
    yield installed
    installed.program.close()


@pytest.mark.slow
def test_an_added_algorithm_trains_from_the_command_line(installed: Installed) -> None:
    # Without the package, which only processes of their own find.
    expected = json.loads(
        run_command("--catalog", str(installed.catalog.root), *TRAIN, "--algorithm", "broadcast").stdout
    )
    found = installed.train("--algorithm", "toy", "--toy-rounds", "2", "--run", "twice")
    assert found["loss"] == expected["loss"]
    assert (found["algorithm"], found["grid"]) == ("toy", [2])
    # The option reached the ranks: every product was sent twice.
    kind = "propagate forward"
    assert found["bytes_by_kind"][kind] == 2 * expected["bytes_by_kind"][kind]
    config = json.loads((installed.catalog["graph"].run_path("twice") / "config.json").read_text())
    assert config["algorithm_options"] == ["toy_rounds=2"]


@pytest.mark.slow
def test_the_help_lists_an_added_algorithm_and_its_options(installed: Installed) -> None:
    text = " ".join(installed.run("train", "--help-all").stdout.split())
    assert "|tensor3d|toy|auto]" in text
    assert "toy: row" in text
    assert "--toy-rounds INTEGER Times that a product is formed (toy). [default: 1]" in text
    assert "toy Row blocks that repeat every product" in text


def test_wrong_options_of_an_added_algorithm_are_one_clear_error(installed: Installed) -> None:
    done = installed.run("train", "graph", "--algorithm", "toy", "--toy-rounds", "0")
    assert (done.returncode, done.stderr) == (3, "error: toy_rounds 0: expected at least 1\n")


def test_an_algorithm_that_is_not_installed_is_no_choice(installed: Installed) -> None:
    done = run_command("--catalog", str(installed.catalog.root), "train", "graph", "--algorithm", "toy")
    assert done.returncode == 2
    assert "'toy' is not one of" in done.stderr
