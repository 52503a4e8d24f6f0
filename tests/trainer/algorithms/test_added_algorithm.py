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
from support.mpi import rank_command
from support.plugins import InstalledProgram, install_plugin
from support.problems import problem

TOY = '''
"""Row blocks, each product twice and halved: the same result with an operator of its own."""

from gnnloom.trainer.algorithms.algorithm import Algorithm
from gnnloom.trainer.algorithms.algorithm import build_on_grid
from gnnloom.storage.option import Option
from gnnloom.trainer.data.open_shards import GRID_SHARDS


def build(context):
    from gnnloom.trainer.operators.row_blocks import RowBlocks

    rounds = context.options["toy_rounds"]

    class Toy(RowBlocks):
        def multiply(self, features, layer, dtype, *, backward):
            product = super().multiply(features, layer, dtype, backward=backward)
            for _ in range(rounds - 1):
                product = super().multiply(features, layer, dtype, backward=backward)
            return product

    return build_on_grid(context, lambda grid, adjacency: Toy(grid, adjacency, context.plan))


ALGORITHM = Algorithm(
    name="toy",
    order=10,
    help="Row blocks that repeat every product",
    source="nobody",
    axes=("row",),
    reads=GRID_SHARDS,
    build=build,
    options={"toy_rounds": Option(default=1, help="Times that a product is formed", least=1)},
)
'''


TRAIN = ("train", "graph", "--ranks", "2", "--hidden", "4,4", "--epochs", "3", "--precision", "float64", "--json")


class Installed:
    """A catalog with grid shards, and an environment in which the toy is installed."""

    def __init__(self, folder: Path) -> None:
        self.catalog = Catalog(folder / "catalog")
        problem("graph", 30, 90, symmetric=False).store_grid(self.catalog, "double", grid=(2, 2))
        environment = install_plugin(folder / "site", "toy", TOY, "gnnloom.algorithms", "ALGORITHM")
        # Its ranks are forked from one process that finds the toy, rather than that each imports torch.
        self.program = InstalledProgram(environment, ranks=rank_command(environment["PYTHONPATH"]))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.program.run("--catalog", str(self.catalog.root), *arguments)

    def train(self, *arguments: str) -> dict[str, Any]:
        done = self.run(*TRAIN, *arguments)
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    installed = Installed(tmp_path_factory.mktemp("toy"))
    yield installed
    installed.program.close()


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


def test_the_help_lists_an_added_algorithm_and_its_options(installed: Installed) -> None:
    text = " ".join(installed.run("train", "--help-all").stdout.split())
    assert "|tensor3d|toy|auto]" in text
    assert "toy: row" in text
    assert "--toy-rounds INTEGER Times that a product is formed (toy) [default: 1]" in text
    assert "toy Row blocks that repeat every product" in text


def test_wrong_options_of_an_added_algorithm_are_one_clear_error(installed: Installed) -> None:
    done = installed.run("train", "graph", "--algorithm", "toy", "--toy-rounds", "0")
    assert (done.returncode, done.stderr) == (3, "error: toy_rounds 0: expected at least 1\n")


def test_an_algorithm_that_is_not_installed_is_no_choice(installed: Installed) -> None:
    done = run_command("--catalog", str(installed.catalog.root), "train", "graph", "--algorithm", "toy")
    assert done.returncode == 2
    assert "'toy' is not one of" in done.stderr
