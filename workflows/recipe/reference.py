"""The keys of recipes, read from the dataclasses: for the manual, and for new recipes with every key in them."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from gnnloom.pipeline.ingest.stage import CHOICES, IngestOptions
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.partitioners import METHODS, MODELS
from gnnloom.pipeline.partition.settings import DIRECTIONS, WEIGHTS
from gnnloom.pipeline.shards.grid.grid_options import PERMUTATIONS, GridOptions
from gnnloom.pipeline.shards.rows.row_options import REORDERS
from gnnloom.pipeline.sources.formats import formats
from gnnloom.pipeline.sources.generators.generator import generators
from gnnloom.pipeline.sources.vertex_data.kind import vertex_kinds
from gnnloom.storage.sampling.kinds import BATCHES
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.workflows.recipe.recipe import SETTLED
from gnnloom.workflows.recipe.sections import (
    CatalogSection,
    ClusterSection,
    DatasetSection,
    PredictSection,
    SamplesSection,
    ShardsSection,
    SlurmSection,
)
from gnnloom.workflows.recipe.sources import source_section, vertices_section
from gnnloom.workflows.recipe.toml_writer import toml_value

_NOUNS = {bool: "true or false", int: "integer", float: "number", str: "text"}


@dataclass(frozen=True)
class Key:
    """A key of a recipe.

    Attributes:
        type: type of the value, in words.
        default: the default as TOML; empty if the key has none.
        choices: all allowed values, if there are a few.
        owners: formats that have the key, for keys that only some have.
    """

    name: str
    type: str
    help: str
    default: str
    required: bool
    choices: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()


@dataclass(frozen=True)
class SectionReference:
    """A section of a recipe: what it is for, and its keys."""

    name: str
    help: str
    keys: tuple[Key, ...]


@dataclass(frozen=True)
class _Kind:
    """The dataclass of a section, and others whose docstrings describe its fields."""

    dataclass: type[Any]
    help: str
    described_by: tuple[type[Any], ...] = ()


@cache
def recipe_sections() -> tuple[SectionReference, ...]:
    """Return all sections, in the order in which the stages use them."""
    return tuple(SectionReference(name, kind.help, tuple(_keys(name, kind))) for name, kind in _kinds().items())


def _kinds() -> Mapping[str, _Kind]:
    return {
        "catalog": _Kind(CatalogSection, "Folder of the datasets."),
        "dataset": _Kind(DatasetSection, "Name of the dataset, and how edges become its graph.", (IngestOptions,)),
        "source": _Kind(source_section(), "Edges: files in a format, or a generator and its options."),
        "vertices": _Kind(
            vertices_section(),
            "Features, labels and split. Without a format, those that come along with the edges.",
        ),
        "partition": _Kind(PartitionOptions, "How the vertices are divided among ranks."),
        "shards": _Kind(
            ShardsSection,
            "What each rank reads; the algorithm decides the layout. `reorder` is for row shards, the other options for"
            " grid shards.",
            (GridOptions,),
        ),
        "samples": _Kind(SamplesSection, "Batches drawn ahead of training; see `gnnloom sample`."),
        "train": _Kind(
            TrainConfig, "Model, algorithm and training. A recipe without this section stops at the shards."
        ),
        "predict": _Kind(PredictSection, "Predict the class of every vertex after training, if the section exists."),
        "cluster": _Kind(ClusterSection, "Where the stages before training run; options of the command override it."),
        "slurm": _Kind(SlurmSection, "Sizes of the batch jobs that `gnnloom run --emit slurm` writes."),
    }


def _keys(section: str, kind: _Kind) -> Iterator[Key]:
    documented = _documented(kind)
    hints = get_type_hints(kind.dataclass)
    for field in dataclasses.fields(kind.dataclass):
        if section == "train" and field.name in SETTLED:
            continue
        text = field.metadata.get("help") or documented.get(field.name, "")
        default, owners = field.default, tuple[str, ...]()
        if section in {"source", "vertices"}:
            option = field.metadata.get("option")
            owners = _owners(section, field.name)
            # The section's own fields have no option.
            text, default = (option.help, option.default) if option else (text, default)
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        # The number of parts is that of the ranks, and the prefix of a path has no default.
        required = required and section != "partition"
        shown = "" if default in (None, dataclasses.MISSING, (), "") else toml_value(default)
        choices = _choices(section, field.name) or getattr(field.metadata.get("option"), "choices", ())
        yield Key(field.name, _noun(hints[field.name]), _sentence(text), shown, required, choices, owners)


def _choices(section: str, name: str) -> tuple[str, ...]:
    """Return the values of a key whose dataclass checks them itself."""
    known: dict[tuple[str, str], Iterable[str]] = {
        **{("dataset", option): values for option, values in CHOICES.items()},
        ("source", "format"): (*generators(), *formats()),
        ("vertices", "format"): (*vertex_kinds(), *(each.name for each in formats().values() if each.vertices)),
        ("partition", "method"): METHODS,
        ("partition", "model"): MODELS,
        ("partition", "weights"): WEIGHTS,
        ("partition", "directions"): DIRECTIONS,
        ("partition", "batches"): BATCHES,
        ("shards", "layout"): ("row", "grid"),
        ("shards", "permutation"): PERMUTATIONS,
        ("shards", "reorder"): REORDERS,
    }
    return tuple(known.get((section, name), ()))


def _owners(section: str, name: str) -> tuple[str, ...]:
    """Return the formats that have an option; none if the section itself has the key."""
    if section == "source":
        known = {each.name: each.options for each in generators().values()}
        known |= {each.name: each.options for each in formats().values()}
    else:
        known = {each.name: each.options for each in vertex_kinds().values()}
        known |= {each.name: each.vertices.options for each in formats().values() if each.vertices}
    return tuple(owner for owner, options in known.items() if any(option.name == name for option in options))


def _documented(kind: _Kind) -> dict[str, str]:
    """Return what the docstrings say about each field; those of the section itself come first."""
    found: dict[str, str] = {}
    for described in (*kind.dataclass.__mro__, *kind.described_by):
        found = _attributes(inspect.getdoc(described) or "") | found
    return found


def _attributes(docstring: str) -> dict[str, str]:
    """Return the entries of a docstring's section ``Attributes``."""
    _, _, block = docstring.partition("Attributes:\n")
    lines = textwrap.dedent(re.split(r"\n\S", block)[0])
    entries = re.findall(r"^([\w, ]+): (.*(?:\n .*)*)", lines, re.MULTILINE)
    return {
        name.strip(): " ".join(text.split()).replace("``", "`") for names, text in entries for name in names.split(",")
    }


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if not text or text.endswith(".") else f"{text}."


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
