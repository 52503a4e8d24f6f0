"""Commands start fast: the help and the listings import nothing heavy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gnnloom.storage import Catalog
from gnnloom.workflows.cli.main import _COMMANDS, cli
from support.graphs import random_adjacency, store_graph
from support.problems import problem

HEAVY = ("dask", "distributed", "mpi4py", "numba", "numcodecs", "pyarrow", "scipy", "torch", "zarr")
#: Also forbidden in the help, which shows no figures.
FOR_FIGURES = ("numpy", "rich")
IMPORTED = """
import sys
from gnnloom.workflows.cli.main import cli
try:
    cli(sys.argv[1:])
finally:
    print(",".join(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
"""
EVERY_HELP = """
import sys
from gnnloom.workflows.cli.main import _COMMANDS, cli
for name in _COMMANDS:
    cli([name, "--help"], standalone_mode=False)
print(",".join(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
"""
#: A plan, a rank, and one that calibrates, in processes of their own; torch, which all need, is loaded once.
TRAINING = """
import os, sys, torch

def plan():
    from gnnloom.workflows.cli.main import cli
    cli([*sys.argv[-2:], "train", *sys.argv[1:-2], "--plan"], standalone_mode=False)

def rank():
    from gnnloom.trainer.__main__ import main
    main(sys.argv[1:])

def measure():
    from gnnloom.trainer.planner.__main__ import main
    sys.argv[1:] = ["tiny", "--scale", "0.001", "--result", sys.argv[-1] + ".profile.json"]
    assert main() == 0

for each in (plan, rank, measure):
    if os.fork() == 0:
        each()
        print(f"\\n{each.__name__}:", *sorted({name.partition(".")[0] for name in sys.modules}), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
"""


def imported(*arguments: str, program: str = IMPORTED) -> set[str]:
    done = subprocess.run([sys.executable, "-c", program, *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split(","))


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("catalog")
    store_graph(Catalog(root).create("web"), random_adjacency(20, 40, 0, symmetric=True), symmetric=True)
    return root


@pytest.fixture(scope="module")
def trainable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    catalog = Catalog(tmp_path_factory.mktemp("trainable"))
    problem("rows", 60, 200, symmetric=True).store(catalog, 1)
    problem("grid", 60, 200, symmetric=True).store_grid(catalog, "double", grid=(2, 2))
    return catalog.root


def test_the_help_imports_no_command() -> None:
    assert not imported("--help") & {*HEAVY, *FOR_FIGURES}


@pytest.mark.slow
def test_the_help_of_every_command_imports_nothing_that_computes() -> None:
    assert not imported(program=EVERY_HELP) & set(HEAVY)


def test_a_listing_reads_metadata_and_imports_nothing_that_computes(catalog: Path) -> None:
    assert not imported("--catalog", str(catalog), "catalog", "ls") & set(HEAVY)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("plan", "grid", "--ranks", "4", "--profile", "generic"),
        ("simulate", "grid", "--ranks", "4", "--profile", "generic"),
    ],
)
def test_a_plan_reads_manifests_and_imports_nothing_that_trains(trainable: Path, command: tuple[str, ...]) -> None:
    # It may read labels and degrees, which are compressed.
    assert not imported("--catalog", str(trainable), *command) & (set(HEAVY) - {"numcodecs"})


@pytest.mark.slow
def test_the_command_that_starts_ranks_leaves_torch_to_them(trainable: Path) -> None:
    # Importing torch would take the command as long as a rank.
    command = ("train", "rows", "--epochs", "1", "--threads", "1")
    assert not imported("--catalog", str(trainable), *command) & (set(HEAVY) - {"numcodecs", "zarr"})


@pytest.mark.slow
def test_plans_and_ranks_on_row_shards_import_and_compile_only_what_they_need(trainable: Path) -> None:
    # A hidden layer that is recomputed, and a measured one, go back from a gradient that is given.
    options = ("rows", "--epochs", "1", "--threads", "1", "--recompute", "--catalog", str(trainable))
    done = subprocess.run([sys.executable, "-c", TRAINING, *options], check=True, capture_output=True, text=True)
    found = dict(
        line.split(": ") for line in done.stdout.splitlines() if line.startswith(("plan: ", "rank: ", "measure: "))
    )
    # The rehearsal of an epoch takes neither numba nor MPI.
    assert not set(found["plan"].split()) & (set(HEAVY) - {"numcodecs", "torch"})
    # numba, with the SciPy that it loads, takes half a second and 90 MB; sympy, which torch loads, as long and 40 MB.
    for name in ("rank", "measure"):
        assert not set(found[name].split()) & {"numba", "llvmlite", "scipy", "dask", "zarr", "rich", "sympy"}, name


def test_every_command_has_a_line_in_the_help() -> None:
    shown = CliRunner().invoke(cli, ["--help"]).output
    context = click.Context(cli)
    for name, (_, line) in _COMMANDS.items():
        assert f"  {name} " in shown
        assert isinstance(cli.get_command(context, name), click.Command)
        assert line.endswith(".")


def test_a_result_has_the_seconds_of_the_whole_command(catalog: Path) -> None:
    command = ["--catalog", str(catalog), "partition", "web", "--parts", "2", "--method", "random", "--workers", "0"]
    found = json.loads(CliRunner().invoke(cli, [*command, "--json"], catch_exceptions=False).output)
    assert found["command_seconds"] >= 0
    again = json.loads(CliRunner().invoke(cli, [*command, "--json"], catch_exceptions=False).output)
    # What the tasks took is a figure of the artifact; what the command takes is one of this call.
    assert again["seconds"] == found["seconds"]
    assert "command seconds" in CliRunner().invoke(cli, command, catch_exceptions=False).output
