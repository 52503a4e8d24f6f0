"""Finds the file of a recipe: a given file, or one of the recipes that come with gnnloom.

Imports nothing slow: a shell waits for the names when it completes a command.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Final

from gnnloom.storage.errors import NotFoundError

#: Folder of the recipes that come with gnnloom.
RECIPES: Final = Path(__file__).parents[1] / "recipes"


def find_recipe(path: Path) -> Path:
    """Return the file of a recipe: the given file, or the recipe of this name that comes with gnnloom.

    Raises:
        NotFoundError: neither exists.
    """
    if path.is_file():
        return path
    if len(path.parts) == 1:
        return find_bundled(path.name)
    raise _not_found(str(path))


def bundled_recipes() -> list[Path]:
    """Return the files of the recipes that come with gnnloom."""
    return sorted(RECIPES.glob("*.toml"))


def find_bundled(name: str) -> Path:
    """Return the file of a recipe that comes with gnnloom.

    Raises:
        NotFoundError: there is no recipe of this name.
    """
    found = next((path for path in bundled_recipes() if path.stem == name), None)
    if found is None:
        raise _not_found(name)
    return found


def summary_of(path: Path) -> str:
    """Return the first sentence of the comment at the beginning of a recipe."""
    lines = itertools.takewhile(lambda line: len(line) > 1, path.read_text(encoding="utf-8").splitlines())
    text = " ".join(line.removeprefix("#").strip() for line in lines)
    return re.split(r"(?<=[^.]{3}\.)\s", text)[0]


def _not_found(name: str) -> NotFoundError:
    there = ", ".join(path.stem for path in bundled_recipes())
    return NotFoundError(f"{name}: no recipe found; give a file, or one that comes with gnnloom: {there}")
