"""The public names of the Python packages, whose docstrings mkdocstrings renders."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def arrange(root: Path, package: Path) -> None:
    """Link the source folders as they are installed: mkdocstrings reads files and does not see setuptools' mapping."""
    folders = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
    package.mkdir(parents=True)
    top = folders.get("gnnloom")
    if top:
        (package / "__init__.py").symlink_to(root / top / "__init__.py")
    else:
        (package / "__init__.py").write_text("")
    for name, folder in folders.items():
        if "." in name:
            (package / name.partition(".")[2]).symlink_to(root / folder)


def names() -> str:
    """Return a directive of mkdocstrings for every public name."""
    folders = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
    blocks = []
    if top := folders.get("gnnloom"):
        blocks += [_package("gnnloom", ROOT / top / "__init__.py")]
    blocks += [_package("gnnloom.storage", ROOT / "storage" / "__init__.py")]
    return "\n\n".join(blocks)


def _package(package: str, file: Path) -> str:
    public = [name for name in _all(file) if not name.startswith("_")]
    about = ast.get_docstring(ast.parse(file.read_text())) or ""
    # What follows the first sentence of a room is for contributors.
    shown = about if package == "gnnloom" else about.partition("\n")[0]
    return "\n\n".join([f"## {package}", _without_roles(shown), *(f"::: {package}.{name}" for name in public)])


def _without_roles(docstring: str) -> str:
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", docstring)


def _all(file: Path) -> list[str]:
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == "__all__" for to in node.targets):
            found: list[str] = ast.literal_eval(node.value)
            return found
    return []
