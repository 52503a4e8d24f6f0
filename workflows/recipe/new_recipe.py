"""Writes a new recipe that has every key, with its help, its type and its default."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from gnnloom.storage.errors import ExistsError, NotFoundError
from gnnloom.workflows.recipe.reference import Key, SectionReference, recipe_sections
from gnnloom.workflows.recipe.toml.toml_writer import toml_value

_WIDTH = 110
_HEAD = """\
# A recipe: everything from raw data to a trained model. Run it with
#
#   gnnloom run {name}
#
# Lines that begin with "#" directly followed by a key show the key's default, or in <...> the type of a key without a
# default; remove the "#" to change it. Sections that are left out take their defaults, except [train] and [predict],
# whose stages then do not run.
"""


def write_new_recipe(path: Path) -> None:
    """Write a new recipe with every key.

    Raises:
        ExistsError: the file exists.
        NotFoundError: its folder does not.
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(new_recipe(path.name))
    except FileExistsError as error:
        raise ExistsError(f"{path}: the file exists; choose another name, or remove it first") from error
    except FileNotFoundError as error:
        raise NotFoundError(f"{path.parent}: no such folder; create it first") from error


def new_recipe(name: str) -> str:
    """Return the text of a new recipe.

    Args:
        name: name of its file, from which the name of the dataset follows.
    """
    dataset = re.sub(r"[^a-z0-9._-]+", "-", name.lower().removesuffix(".toml")).strip(".-_") or "graph"
    # The few keys that a recipe cannot do without.
    given = {("dataset", "name"): dataset, ("source", "path"): "edges.txt.gz"}
    blocks = [_HEAD.format(name=name)]
    for section in recipe_sections():
        values = {key: value for (owner, key), value in given.items() if owner == section.name}
        blocks.append(_section(section, values))
    return "\n".join(blocks)


def _section(section: SectionReference, given: dict[str, str]) -> str:
    lines = [*_comment(section.help), f"[{section.name}]"]
    for heading, keys in section.groups.items():
        lines += ["", f"# ---- {heading} ----"] if heading else []
        for key in keys:
            value = toml_value(given[key.name]) if key.name in given else key.default or f"<{key.type}>"
            lines += ["", *_comment(_help(key)), f"{'' if key.name in given else '#'}{key.name} = {value}"]
    return "\n".join(lines) + "\n"


def _help(key: Key) -> str:
    choices = f" One of: {', '.join(key.choices)}." if key.choices else ""
    owners = f" Formats: {', '.join(key.owners)}." if key.owners else ""
    return f"{key.help}{choices}{owners}"


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, _WIDTH)]
