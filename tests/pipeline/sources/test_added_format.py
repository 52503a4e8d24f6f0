"""A format is one file: another package's format works on the command line, on Dask workers and in recipes."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gnnloom.storage import Catalog
from support.plugins import InstalledProgram


@pytest.fixture(scope="module")
def program(added_packages: dict[str, str]) -> Iterator[InstalledProgram]:
    """The command of a user who installed the toy format."""
    program = InstalledProgram(added_packages)
    yield program
    program.close()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "file.toy"
    path.write_text("9")
    return path


def gnnloom(program: InstalledProgram, catalog: Catalog, *arguments: str) -> subprocess.CompletedProcess[str]:
    return program.run("--catalog", str(catalog.root), *arguments)


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "guessed"), [("0", True), ("1", False)])
def test_added_format_is_ingested_with_its_own_option(
    program: InstalledProgram, catalog: Catalog, source: Path, workers: str, guessed: bool
) -> None:
    chosen = [] if guessed else ["--format", "toy"]
    done = gnnloom(
        program,
        catalog,
        *("ingest", "path", str(source), *chosen, "--shift", "3", "--self-loops", "keep", "--workers", workers),
        "--json",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["edges_in"] == 9
    row, column = catalog["path"].graph().to_scipy().nonzero()
    assert np.array_equal(column, np.arange(3, 12))
    assert np.array_equal(row, np.arange(4, 13))


def test_help_lists_an_added_format_and_its_option(program: InstalledProgram, catalog: Catalog) -> None:
    text = gnnloom(program, catalog, "ingest", "--help-all").stdout
    assert "|planetoid|toy|triples]" in text
    assert ".toy: a number of edges" in text
    assert "toy: Number to add to every id." in text


def test_options_of_an_added_format_are_checked(program: InstalledProgram, catalog: Catalog, source: Path) -> None:
    packed = gnnloom(program, catalog, "ingest", "path", str(source), "--packed")
    assert packed.returncode == 3
    assert re.search("format 'toy' .* packed.* shift", packed.stderr)
    negative = gnnloom(program, catalog, "ingest", "path", str(source), "--shift", "-1")
    assert negative.returncode == 2
    assert "--shift" in negative.stderr


def test_recipes_have_the_keys_of_an_added_format(
    program: InstalledProgram, catalog: Catalog, source: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "toy.toml"
    content = (
        f'[dataset]\nname = "path"\n[source]\nformat = "toy"\npath = "{source}"\nshift = SHIFT\n[train]\nranks = 1\n'
    )
    recipe.write_text(content.replace("SHIFT", "3"))
    done = gnnloom(program, catalog, "run", str(recipe), "--until", "graph", "--set", "cluster.workers=0")
    assert done.returncode == 0, done.stderr
    assert catalog["path"].graph().num_vertices == 13
    recipe.write_text(content.replace("SHIFT", '"three"'))
    wrong = gnnloom(program, catalog, "run", str(recipe), "--dry-run")
    assert wrong.returncode == 3
    assert "line 6: [source] shift" in wrong.stderr
