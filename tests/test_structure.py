"""The shape of the source: rooms, packages, and what may import what."""

from __future__ import annotations

import ast
import subprocess
import tomllib
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from support.import_contracts import TOP_LEVEL, direct_imports
from support.tracked_files import misplaced_files

ROOT = Path(__file__).resolve().parents[1]
ROOMS = sorted(path.parent for top in TOP_LEVEL for path in (ROOT / top).rglob("__init__.py"))


def test_no_files_import_each_other_in_a_circle() -> None:
    """Counts imports inside functions and those for type checkers as well."""
    imports = direct_imports()
    modules = list(imports)
    number = {module: position for position, module in enumerate(modules)}
    pairs = [(number[one], number[other]) for one, imported in imports.items() for other in imported]
    importer, imported = np.array(pairs).T
    matrix = csr_array((np.ones(len(pairs)), (importer, imported)), shape=(len(modules), len(modules)))
    _, component = connected_components(matrix, connection="strong")
    circles = [
        [modules[member] for member in np.flatnonzero(component == label)]
        for label in np.flatnonzero(np.bincount(component) > 1)
    ]
    assert circles == []


def test_the_packages_that_are_installed_are_the_folders() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    # One folder is the top package itself; the file system has no place for it above the others.
    rooms = [room for room in ROOMS if room != ROOT / "workflows" / "gnnloom"]
    assert listed == ["gnnloom", *(f"gnnloom.{'.'.join(room.relative_to(ROOT).parts)}" for room in rooms)]


def test_every_room_says_what_happens_in_it() -> None:
    silent = [room for room in ROOMS if not ast.get_docstring(ast.parse((room / "__init__.py").read_text()))]
    assert silent == []


def test_the_page_of_what_tests_share_has_the_first_line_of_every_module() -> None:
    folder = ROOT / "tests" / "support"
    first_lines = {
        f"* `{path.name}`: {(ast.get_docstring(ast.parse(path.read_text())) or '').splitlines()[0].rstrip('.')}"
        for path in folder.glob("*.py")
        if path.name != "__init__.py"
    }
    listed = [line for line in (folder / "README.md").read_text().splitlines() if line.startswith("* ")]
    assert sorted(listed) == sorted(first_lines)


def test_binaries_and_large_files_are_refused(tmp_path: Path) -> None:
    files = {
        "code.py": b"x = 1\n",
        "wheel.whl": b"PK\0",
        "log.txt": b"x" * 200_001,
        "docs/images/small.png": b"\x89PNG\0",
        "docs/images/large.png": b"\x89PNG\0" * 40_001,
        "docs/other/small.png": b"\x89PNG\0",
        "tests/data/big.bin": b"\0" * 200_001,
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "--all"], cwd=tmp_path, check=True)
    refused = ["docs/images/large.png", "docs/other/small.png", "log.txt", "wheel.whl"]
    assert [line.partition(":")[0] for line in misplaced_files(tmp_path)] == refused
