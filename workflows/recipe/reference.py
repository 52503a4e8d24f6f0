"""Lists the keys of recipes, from the dataclasses: for the manual, and for new recipes with every key."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from gnnloom.storage.errors import ExistsError, NotFoundError
from gnnloom.storage.option import MOST_USED, Group, Option, option_fields
from gnnloom.workflows.recipe.read import list_kinds, section_kinds
from gnnloom.workflows.recipe.recipe import SETTLED
from gnnloom.workflows.recipe.sources import source_options, vertices_options
from gnnloom.workflows.recipe.tables import table_options
from gnnloom.workflows.recipe.toml.text import toml_value

#: The options of the formats of sections with keys of formats; lists of sections are in brackets.
_WITH_FORMATS: Mapping[str, Callable[[], Mapping[str, Sequence[Option]]]] = {
    "source": source_options,
    "vertices": vertices_options,
    "[relations]": table_options,
    "[vertices]": table_options,
}
#: A section with fewer keys has no headings.
_FEW_KEYS = 12
_NOUNS = {bool: "true or false", int: "integer", float: "number", str: "text"}


@dataclass(frozen=True)
class Key:
    """A key of a recipe.

    Attributes:
        type: type of the value, in words.
        default: the default as TOML; empty if the key has none.
        choices: all allowed values, if there are a few.
        owners: formats that have the key, for keys that only some have.
        heading: the key's group in help.
    """

    name: str
    type: str
    help: str
    default: str
    required: bool
    choices: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    heading: str = ""


@dataclass(frozen=True)
class SectionReference:
    """A section of a recipe: its purpose, and its keys in groups.

    Attributes:
        is_list: the recipe may have several of this section, with two brackets.
    """

    name: str
    help: str
    keys: tuple[Key, ...]
    is_list: bool = False

    @property
    def title(self) -> str:
        """The name of the section in a recipe."""
        return f"[[{self.name}]]" if self.is_list else f"[{self.name}]"

    @property
    def anchor(self) -> str:
        """The name of the section in links to the manual."""
        return f"list-of-{self.name}" if self.is_list else self.name

    @property
    def groups(self) -> Mapping[str, tuple[Key, ...]]:
        """The keys by heading; a short section is one group without a heading."""
        groups = {heading: tuple(key for key in self.keys if key.heading == heading) for heading in (MOST_USED, *Group)}
        found = {heading: keys for heading, keys in groups.items() if keys}
        return found if len(found) > 1 and len(self.keys) >= _FEW_KEYS else {"": self.keys}


@cache
def recipe_sections() -> tuple[SectionReference, ...]:
    """Return all sections, in the order in which the stages use them."""
    kinds, lists = section_kinds(), list_kinds()
    sections = [SectionReference(name, text, tuple(_keys(name, kinds[name]))) for name, text in _PURPOSES.items()]
    tables = [
        SectionReference(name, text, tuple(_keys(f"[{name}]", lists[name])), is_list=True)
        for name, text in _OF_LISTS.items()
    ]
    after = next(number for number, section in enumerate(sections, 1) if section.name == "vertices")
    return (*sections[:after], *tables, *sections[after:])


#: Purpose of every section.
_PURPOSES = {
    "catalog": "Folder of the datasets.",
    "dataset": "Name of the dataset, and how edges become its graph.",
    "source": "Edges: files in a format, or a generator and its options.",
    "vertices": "Features, labels and split. Without a format, the source of the edges provides them.",
    "links": ("Edges to hold out of the graph that the later stages read, if the section exists; see `gnnloom links`."),
    "partition": "How the vertices are divided among ranks.",
    "shards": (
        "What each rank reads; the algorithm decides the layout. `reorder` is for row shards, all else for grids."
    ),
    "samples": "Batches drawn ahead of training; see `gnnloom sample`.",
    "propagate": (
        "Products of the adjacency with the features, made on the ranks of the training; see `gnnloom propagate`."
        ' `[train] mode = "rows"` reads them.'
    ),
    "train": "Model, algorithm and training. A recipe without this section stops before it.",
    "predict": "Predict the class of every vertex after training, or score pairs, if the section exists.",
    "cluster": "Where the stages before training run; options of the command override it.",
    "slurm": "Sizes of the batch jobs that `gnnloom run --emit slurm` writes.",
}
#: Purpose of every list of sections.
_OF_LISTS = {
    "relations": (
        "The table of a relation, once for each relation of a graph with types, instead of `[source]`. `[links]`"
        " names a `relation`, and `[train]` names `of_type` or `relation`; a recipe without `[train]` may have"
        " `[partition]` and `[shards]`."
    ),
    "vertices": "A list of the vertices of a type, for any types of a graph with `[[relations]]`.",
}


def _keys(section: str, kind: type[Any]) -> Iterator[Key]:
    # Fields that a recipe cannot set, because they follow from other sections.
    left_out = SETTLED if section == "train" else ()
    by_format = _WITH_FORMATS[section]() if section in _WITH_FORMATS else {}
    for option, annotation in (
        (each.option, each.annotation) for name, each in option_fields(kind).items() if name not in left_out
    ):
        # None if the section itself has the key.
        owners = tuple(name for name, options in by_format.items() if option.name in {each.name for each in options})
        # The number of parts is the number of ranks.
        required = option.default is dataclasses.MISSING and section != "partition"
        default = option.default
        shown = "" if default in (None, dataclasses.MISSING, (), "") else toml_value(default)
        choices = tuple(by_format) if option.name == "format" and by_format else option.choices
        text = option.sentence
        text += f" Default: {option.default_text}." if option.default_text else ""
        yield Key(option.name, _noun(annotation), text, shown, required, choices, owners, option.heading)


def _noun(hint: Any) -> str:
    kinds = [kind for kind in (get_args(hint) if isinstance(hint, UnionType) else (hint,)) if kind is not NoneType]
    return " or ".join(dict.fromkeys(_noun_of(kind) for kind in kinds))


def _noun_of(kind: Any) -> str:
    if get_origin(kind) is not tuple:
        return _NOUNS[kind]
    items = get_args(kind)
    if items[-1] is not Ellipsis:
        return f"list of {len(items)} {_NOUNS[items[0]]}s"
    return f"{_NOUNS[items[0]]} or list of {_NOUNS[items[0]]}s"


_WIDTH = 110
_HEAD = """\
# A recipe: everything from raw data to a trained model. Run it with
#
#   gnnloom run {name}
#
# Lines that begin with "#" directly followed by a key show the key's default, or in <...> the type of a key without a
# default; remove the "#" to change it. Sections that are left out take their defaults, except [train] and [predict],
# whose stages then do not run. Recipes of graphs with types have [[relations]] instead of [source]; see the manual.
"""


def write_new_recipe(path: Path) -> None:
    """Write a new recipe with every key.

    Raises:
        ExistsError: the file exists.
        NotFoundError: the folder of the file does not exist.
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
        name: name of its file, which determines the name of the dataset.
    """
    dataset = re.sub(r"[^a-z0-9._-]+", "-", name.lower().removesuffix(".toml")).strip(".-_") or "graph"
    # The few required keys of a recipe.
    given = {("dataset", "name"): dataset, ("source", "path"): "edges.txt.gz"}
    blocks = [_HEAD.format(name=name)]
    for section in (each for each in recipe_sections() if not each.is_list):
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
