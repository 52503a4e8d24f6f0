"""Reads a recipe: builds each section, settles what sections leave to each other, and checks that they fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.storage.disk.files import user_path
from gnnloom.storage.errors import InputError
from gnnloom.trainer.config.algorithm_config import AlgorithmConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.workflows.recipe.bundled import find_recipe
from gnnloom.workflows.recipe.recipe import SECTIONS, SELECTS_SHARDS, Recipe
from gnnloom.workflows.recipe.sections import (
    CatalogSection,
    ClusterSection,
    DatasetSection,
    PredictSection,
    PropagateSection,
    SamplesSection,
    ShardsSection,
    SlurmSection,
)
from gnnloom.workflows.recipe.sources import (
    SourceSection,
    VerticesSection,
    source_options,
    vertices_options,
    with_keys,
)
from gnnloom.workflows.recipe.tables import LISTS, ListSection, RelationSection, table_options
from gnnloom.workflows.recipe.toml.document import Document, Mistakes
from gnnloom.workflows.recipe.typed_checks import NOT_TRAINED, check_lists, check_types, refuse_types
from gnnloom.workflows.recipe.unused_keys import (
    refuse_unused_partition,
    refuse_unused_shards_keys,
    refuse_unused_train_keys,
)

#: Sections that are built even if the file lacks them: some keys are required, or others follow from the formats.
_ALWAYS: Final = frozenset({"dataset", "catalog", "source", "vertices"})


def read_recipe(path: Path, catalog: Path, settings: Sequence[str] = ()) -> Recipe:
    """Read and check a recipe: a file, or the name of one that comes with gnnloom.

    Args:
        catalog: folder of the datasets, unless the recipe names one.
        settings: ``section.key=value`` each; they override the file.

    Raises:
        InputError: keys are wrong; the message names their lines and the allowed keys or values.
        NotFoundError: the recipe does not exist.
    """
    document = Document.read(find_recipe(path), settings, LISTS)
    recipe, mistakes = _each_section(document, catalog), Mistakes()
    if recipe.train is not None:
        with mistakes.noted():
            refuse_unused_train_keys(document, recipe.train)
    recipe = replace(recipe, shards=_shards(document, recipe, mistakes))
    recipe = replace(recipe, partition=_partition(document, recipe, mistakes))
    with mistakes.noted():
        if recipe.relations:
            check_types(document, recipe)
        else:
            refuse_types(document, recipe)
    if recipe.samples.epochs:
        with mistakes.noted(), document.located("samples"):
            if recipe.train is None:
                raise InputError("epochs: nothing is trained on the samples; add a section [train]")
            # Building the options checks them.
            recipe.samples.options(recipe.train)
    if recipe.propagate.steps:
        with mistakes.noted():
            _check_propagation(document, recipe)
    if recipe.predict is not None:
        _check_prediction(document, recipe, recipe.predict, mistakes)
    mistakes.check()
    return recipe


def _each_section(document: Document, catalog: Path) -> Recipe:
    """Build each section separately; the layout of the shards and the partition are not settled yet.

    Raises:
        InputError: all mistakes that one section alone shows.
    """
    mistakes, found = Mistakes(), dict[str, Any]()
    with mistakes.noted():
        document.check_sections(SECTIONS)
    with mistakes.noted():
        check_lists(document)
    # Fields that follow from other sections; any values will do.
    settled: dict[str, dict[str, Any]] = {
        "source": {"path": ("edges",)} if document.entries("relations") else {},
        "partition": {} if "parts" in document.sections.get("partition", {}) else {"parts": AlgorithmConfig.ranks},
        "train": {"catalog": "catalog", "dataset": "dataset", **dict.fromkeys(SELECTS_SHARDS)},
    }
    for name, kind in section_kinds().items():
        if name in document.sections or name in _ALWAYS:
            with mistakes.noted():
                found[name] = document.build(name, kind, **settled.get(name, {}))
    lists: dict[str, list[Any]] = {name: [] for name in LISTS}
    for name in LISTS:
        for entry in document.entries(name):
            with mistakes.noted():
                lists[name].append(document.build(entry, list_kinds()[name]))
    mistakes.check()
    if relations := lists["relations"]:
        found["source"] = replace(found["source"], path=relations[0].path)
    named: str | None = found["catalog"].path
    found["catalog"] = user_path(named) if named else catalog
    if "train" in found:
        place = {"catalog": str(found["catalog"].resolve()), "dataset": found["dataset"].name}
        found["train"] = found["train"].with_options(**place)
    return Recipe(document.name, **found, relations=tuple(relations), lists=tuple(lists["vertices"]))


@cache
def section_kinds() -> Mapping[str, type[Any]]:
    """The dataclass of every section, in the order in which mistakes are reported.

    The sections of sources have a key for every option of every format and generator, or of every kind of vertex data.

    Raises:
        InputError: two formats use one name for options of different types, or an option has the name of a method.
    """
    return MappingProxyType(
        {
            "dataset": DatasetSection,
            "catalog": CatalogSection,
            "source": with_keys(SourceSection, source_options()),
            "vertices": with_keys(VerticesSection, vertices_options()),
            "links": DrawOptions,
            "partition": PartitionOptions,
            "shards": ShardsSection,
            "samples": SamplesSection,
            "propagate": PropagateSection,
            "train": TrainConfig,
            "predict": PredictSection,
            "cluster": ClusterSection,
            "slurm": SlurmSection,
        }
    )


@cache
def list_kinds() -> Mapping[str, type[Any]]:
    """The dataclass of the entries of every list of sections, with a key for every option of the formats of tables."""
    kinds = {"relations": RelationSection, "vertices": ListSection}
    return MappingProxyType({name: with_keys(kind, table_options()) for name, kind in kinds.items()})


def _shards(document: Document, recipe: Recipe, mistakes: Mistakes) -> ShardsSection:
    """The section on shards with their layout: the one that the algorithm reads, if the recipe trains."""
    given, shards = document.sections.get("shards"), recipe.shards
    if recipe.relations and given is None:
        return shards
    # Options of grid shards imply a grid.
    meant = "grid" if (given or {}).keys() - {"reorder"} else "row"
    algorithm = recipe.train.algorithm if recipe.train else None
    needed = algorithm.kind.reads.name if algorithm else shards.layout or meant
    settled = replace(shards, layout=needed)
    with mistakes.noted():
        if algorithm is not None and shards.layout not in {None, needed}:
            reads = f"layout {shards.layout!r}: algorithm {algorithm.name} reads {needed} shards"
            raise document.error("shards", f"{reads}; remove the key, or change [train] algorithm", "layout")
        refuse_unused_shards_keys(document, settled, algorithm.name if algorithm else None)
    return settled


def _partition(document: Document, recipe: Recipe, mistakes: Mistakes) -> PartitionOptions | None:
    """The partition, by default with one part per rank; None if the shards need no partition."""
    if recipe.relations and document.sections.keys().isdisjoint(NOT_TRAINED):
        return None
    shards, options = recipe.shards, recipe.partition or PartitionOptions(AlgorithmConfig.ranks)
    algorithm = recipe.train.algorithm if recipe.train else None
    if algorithm is not None and "parts" not in document.sections.get("partition", {}):
        with document.located("partition"):
            options = replace(options, parts=algorithm.ranks)
    is_unused = shards.layout == "grid" and shards.permutation != "partition"
    with mistakes.noted():
        if is_unused:
            refuse_unused_partition(document, shards)
        elif algorithm is not None and shards.layout == "row" and options.parts != algorithm.ranks:
            differs = f"parts = {options.parts}, but [train] ranks = {algorithm.ranks}"
            needs = f"algorithm {algorithm.name} needs one part per rank; remove parts, or make them equal"
            raise document.error("partition", f"{differs}: {needs}", "parts")
    return None if is_unused else options


def _check_propagation(document: Document, recipe: Recipe) -> None:
    if recipe.shards.layout == "grid":
        raise document.error("propagate", "reads row shards, and this recipe makes grid shards", "steps")
    if recipe.train is not None:
        with document.located("propagate"):
            recipe.propagate.check_training(recipe.train)


def _check_prediction(document: Document, recipe: Recipe, section: PredictSection, mistakes: Mistakes) -> None:
    with mistakes.noted():
        if recipe.train is None:
            raise document.error("predict", "needs a trained model; add a section [train]")
    with mistakes.noted(), document.located("predict"):
        key = "pairs" if section.pairs is not None else "top"
        if section.wanted and (recipe.train is None or not recipe.train.task.on_pairs):
            raise InputError(f'{key}: the run trains on vertices; train on pairs, such as with task = "link"')
        if section.wanted and (section.elsewhere.on or section.elsewhere.graph):
            raise InputError(f"{key}: pairs can be scored only on the training graph")
