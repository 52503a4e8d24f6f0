"""Completion in the shell offers commands, options, and the names of datasets, runs and recipes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from gnnloom.storage import Catalog
from gnnloom.storage.runs.run import Run
from gnnloom.workflows.cli.main import cli


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    catalog = Catalog(tmp_path_factory.mktemp("completed") / "catalog")
    for name, runs in {"web": ("first", "second"), "roads": ("only",)}.items():
        dataset = catalog.create(name)
        for run in runs:
            Run(dataset.run_path(run)).start({}, 0)
    return catalog.root


def offered(root: Path, words: str, incomplete: str) -> list[str]:
    completion = ShellComplete(cli, {}, "gnnloom", "_GNNLOOM_COMPLETE")
    found = completion.get_completions(["--catalog", str(root), *words.split()], incomplete)
    return [item.value for item in found if item.type == "plain"]


@pytest.mark.parametrize(
    ("words", "incomplete", "expected"),
    [
        ("", "comp", ["completion"]),
        ("export", "", ["roads", "web"]),
        ("catalog show", "w", ["web"]),
        ("export", "web/", ["web/first", "web/second"]),
        ("export web predictions --run", "", ["first", "second"]),
        ("report", "web/f", ["web/first"]),
        ("report web/first", "", ["roads/only", "web/first", "web/second"]),
        ("report", "none/", []),
        ("run", "quick", ["quick-start"]),
        ("export web predictions", "--ru", ["--run"]),
    ],
)
def test_names_of_what_is_stored_are_completed(root: Path, words: str, incomplete: str, expected: list[str]) -> None:
    assert offered(root, words, incomplete) == expected


def test_recipes_of_the_current_folder_are_completed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "quickly.toml").touch()
    monkeypatch.chdir(tmp_path)
    assert offered(root, "run", "quick") == ["quick-start", "quickly.toml"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_asks_gnnloom(shell: str) -> None:
    done = CliRunner().invoke(cli, ["completion", shell])
    assert done.exit_code == 0
    assert f"_GNNLOOM_COMPLETE={shell}_complete" in done.output


def test_completing_a_name_imports_nothing_that_takes_seconds(root: Path) -> None:
    program = f"""
import sys
from click.shell_completion import ShellComplete
from gnnloom.workflows.cli.main import cli
ShellComplete(cli, {{}}, "gnnloom", "_").get_completions(["--catalog", {str(root)!r}, "report"], "")
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert not {"torch", "dask", "distributed", "numba", "matplotlib", "zarr"} & set(done.stdout.split())
