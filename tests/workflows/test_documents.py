"""Every command shown in the README, CONTRIBUTING or a recipe runs, as it is or at a smaller size."""

from __future__ import annotations

import ast
import gzip
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom import Run
from gnnloom.workflows.recipe.bundled import RECIPES
from support.documents import shown_commands, shown_python, shown_tables
from support.in_process import run_here
from support.ogb_folders import write_ogb_binary_folder, write_ogb_folder
from support.recipes import TINY
from support.slurm import write_slurm

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BIN = Path(sys.executable).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def _smaller(*settings: str) -> str:
    return "".join(f" --set {setting}" for setting in settings)


#: Replacements for commands that are large, need a network, or leave something to fill in.
INSTEAD = {
    "make demo": "gnnloom demo --ranks 2 --edges 3000",
    "make bench-...": f"make --dry-run --directory {ROOT} bench-ingest",
    # There is no catalog where the commands for contributors run.
    "gnnloom catalog gc": "gnnloom catalog gc --help",
    "bash .ci/run": f"bash -n {ROOT}/.ci/run",
}
QUICK = _smaller(*TINY)
SMALL_TRAINING = _smaller("partition.method=random", "train.ranks=2", "train.epochs=2", "train.hidden=8")
#: Options added to commands that begin like this.
SMALLER = {
    "gnnloom run quick-start": QUICK,
    "mpirun -n 4 gnnloom run quick-start": QUICK,
    "gnnloom run cora": SMALL_TRAINING,
    "gnnloom run ogbn-products --set": SMALL_TRAINING,
    "gnnloom run ogbn-products --emit": _smaller("source.path=dataset/ogbn_products"),
    "gnnloom run ogbn-papers100m": SMALL_TRAINING
    + _smaller("source.path=dataset/ogbn_papers100M", "slurm.prepare_ranks=2"),
    "gnnloom run rmat --emit": "",
    "gnnloom run rmat": _smaller("source.scale=7", "shards.grid=4,4", "train.epochs=2", "train.hidden=8"),
    "gnnloom run snap": SMALL_TRAINING,
}


#: Commands that start ranks or need their output: a few seconds each.
OF_RUNS = tuple(f"gnnloom {name}" for name in ("train", "predict", "export", "report", "run"))
LONG = (*OF_RUNS, "mpirun", "make demo")
#: Commands that a test cannot run, as they install packages. `make wheel` installs gnnloom as such a command does.
INSTALLED = ("pip install gnnloom[", "pip install 'gnnloom[", "pip install '.[report]'")


def replaced(command: str) -> str:
    """Return what to run for a command that a document shows."""
    if command in INSTEAD:
        return INSTEAD[command]
    if command.startswith("make "):
        # Other checks run the targets; here they only have to exist.
        return f"make --dry-run --directory {ROOT} {command.removeprefix('make ')}"
    if len(command.split()) == 2 and command.startswith("gnnloom "):
        return f"{command} --help"
    return command + next((more for begin, more in SMALLER.items() if command.startswith(begin)), "")


def write_data(folder: Path) -> None:
    """Write what the commands of recipes read: folders of OGB, and a ring of vertices with chords."""
    around = np.arange(120)
    edges = np.concatenate([np.stack([around, (around + step) % 120], 1) for step in (1, 7)])
    with gzip.open(folder / "soc-Epinions1.txt.gz", "wt") as file:
        file.write("".join(f"{3 * u}\t{3 * v}\n" for u, v in edges))
    for name in ("path/to/cora", "dataset/ogbn_products"):
        write_ogb_folder(folder / name)
    write_ogb_binary_folder(folder / "dataset" / "ogbn_papers100M")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which a test runs its commands one after the other, with the tables that the README shows."""
    for name, content in shown_tables(README).items():
        (tmp_path / name).write_text(content)
    write_slurm(tmp_path / "stand-ins")
    return tmp_path


def run(folder: Path, command: str) -> None:
    """Run one command in a shell."""
    path = f"{folder / 'stand-ins'}:{BIN}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def readme_commands(*left_out: str) -> list[str]:
    """All commands of the README in order, except those that begin with one of ``left_out``."""
    commands = shown_commands(README)
    return [replaced(command) for command in commands if not command.startswith((*INSTALLED, *left_out))]


def test_readme_commands_that_start_no_ranks_work_in_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    commands = readme_commands(*LONG)
    assert [command.split()[1] for command in commands if not command.startswith("make ")][:6] == [
        "look",
        "ingest",
        "ingest",
        "features",
        "partition",
        "shard",
    ]
    for command in commands:
        run_here(command)


def test_the_readme_is_short() -> None:
    assert len(README.split()) <= 1300


def test_the_links_of_the_readme_lead_to_files_and_headings() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)(?:#([^)]+))?\)", README)
    assert len(links) > 20
    for name, anchor in links:
        headings = re.findall(r"^#+ (.*)$", (ROOT / name).read_text(), re.MULTILINE) if anchor else []
        anchors = [re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings]
        assert (ROOT / name).is_file(), name
        assert not anchor or anchor in anchors, f"{name}#{anchor}"


def test_the_figures_of_the_readme_are_those_of_the_measurements() -> None:
    """Every number of the table of measurements is in RESULTS.md."""
    section = README.partition("\n## What has been measured\n")[2].partition("\n## ")[0]
    rows = [re.sub(r"\(.*?\)", "", line) for line in section.splitlines() if re.match(r"\| .*\d", line)]
    assert len(rows) >= 6
    measured = set(_numbers((ROOT / "tests" / "benchmarks" / "RESULTS.md").read_text()))
    for row in rows:
        assert set(_numbers(row)) <= measured, row


def test_the_citation_names_the_version() -> None:
    assert f"\nversion: {PROJECT['version']}\n" in (ROOT / "CITATION.cff").read_text()


def _numbers(text: str) -> list[str]:
    return re.findall(r"(?<![\w.,])\d+(?:[.,]\d+)*(?![\w])", text)


@pytest.mark.long
def test_the_quick_start_in_python_predicts_cora_in_ten_lines(tmp_path: Path, shared_data: Path) -> None:
    (program,) = shown_python(README)
    assert len([line for line in program.splitlines() if line.strip()]) <= 10
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "cora").symlink_to(shared_data / "cora")
    run(tmp_path, shlex.join([sys.executable, "-c", program]))
    trained = Run.open("cora", tmp_path / "catalog")
    assert trained.result()["test_accuracy"] > 0.79
    assert len(trained.predictions()) == 2708
    assert (tmp_path / "classes.csv").read_text().count("\n") == 2709


@pytest.mark.long
def test_all_readme_commands_work_in_order(folder: Path) -> None:
    for command in readme_commands():
        run(folder, command)


def test_documented_extras_exist() -> None:
    shown = [
        command for name in ("README.md", "CONTRIBUTING.md") for command in shown_commands((ROOT / name).read_text())
    ]
    extras = [command.partition("[")[2].partition("]")[0] for command in shown if "gnnloom[" in command]
    assert extras
    assert set(extras) <= set(EXTRAS)


def test_commands_for_contributors_exist(folder: Path) -> None:
    commands = shown_commands((ROOT / "CONTRIBUTING.md").read_text())
    assert "make test" in commands
    for command in commands:
        run(folder, replaced(command))


@pytest.mark.long
@pytest.mark.parametrize("recipe", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_commands_in_recipes_work(folder: Path, recipe: Path) -> None:
    write_data(folder)
    commands = shown_commands(recipe.read_text())
    assert commands
    for command in commands:
        run(folder, replaced(command))


def test_a_step_can_be_followed_in_a_few_lines() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("## Follow a step")[2].partition("\n## ")[0]
    total = 0
    for path, names in re.findall(r"^\d\. `(\S+\.py)`((?:,? `[\w.]+`)+)", text, re.MULTILINE):
        source = (ROOT / path).read_text()
        for name in re.findall("`([^`]+)`", names):
            found: Any = ast.parse(source)
            for part in name.split("."):
                found = next(each for each in found.body if getattr(each, "name", None) == part)
            docstring = len((ast.get_docstring(found) or "").splitlines())
            total += found.end_lineno - found.lineno + 1 - docstring
    assert 100 < total < 200
