"""Checks the sections of recipes with relations, and refuses their keys in other recipes."""

from __future__ import annotations

from typing import Any, Final

from gnnloom.pipeline.ingest.typed.options import TypedOptions
from gnnloom.pipeline.ingest.typed.table import BY_ROW
from gnnloom.pipeline.partition.settings import AUTO
from gnnloom.pipeline.shards.shard_options import check_typed_grid
from gnnloom.storage.artifacts.typed.typed_names import check_distinct
from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import did_you_mean
from gnnloom.workflows.recipe.recipe import WITHOUT_TYPES, Recipe
from gnnloom.workflows.recipe.toml.document import Document, Mistakes

#: Sections of recipes with types; training does not read their artifacts yet.
NOT_TRAINED: Final = ("partition", "shards")


def check_lists(document: Document) -> None:
    """Refuse sections that a graph with types does not have, and its lists in other recipes.

    Raises:
        InputError: there is such a section; names its line.
    """
    if document.entries("relations"):
        mistakes = Mistakes()
        for section in filter(document.sections.__contains__, WITHOUT_TYPES):
            with mistakes.noted():
                remedy = "write [[vertices]] with a type" if section == "vertices" else "remove the section"
                raise document.error(
                    section,
                    ": the recipe has [[relations]], and the other stages of a graph with types are its links, the"
                    f" partition, the shards, the samples, the training and the prediction; {remedy}",
                )
        for section in filter(document.sections.__contains__, NOT_TRAINED):
            with mistakes.noted():
                if "train" in document.sections:
                    raise document.error(
                        section,
                        ": training on a graph with types reads the stored graph, so nothing would read the output of"
                        " this section; remove the section, or [train]",
                    )
        mistakes.check()
    elif "relations" in document.sections:
        raise InputError(f"{document.where('relations')}: write [[relations]], once for each relation")
    elif lists := document.entries("vertices"):
        raise InputError(
            f"{document.where(lists[0])}: [[vertices]] belongs to a graph with types, which needs [[relations]]; write"
            " [vertices] for features, labels and split"
        )


def check_types(document: Document, recipe: Recipe) -> None:
    """Check the sections of a recipe with relations against each other.

    Raises:
        InputError: they do not fit; names their lines.
    """
    mistakes = Mistakes()
    with mistakes.noted():
        if recipe.dataset.undirected:
            derived = "undirected: relations have a direction; their reverses are derived, under the name rev_NAME"
            raise document.error("dataset", derived, "undirected")
    with mistakes.noted():
        _check_links(document, recipe)
    with mistakes.noted():
        _check_training(document, recipe)
    with mistakes.noted():
        _check_distinct_types(document, recipe)
    with mistakes.noted():
        _check_parts(document, recipe)
    mistakes.check()


def refuse_types(document: Document, recipe: Recipe) -> None:
    """Refuse the keys of recipes with relations in another recipe.

    Raises:
        InputError: there is such a key; names its line.
    """
    mistakes, partition = Mistakes(), recipe.partition
    alone = "only graphs with types have it; give their [[relations]]"
    with mistakes.noted():
        if recipe.dataset.unknown != TypedOptions.unknown:
            raise document.error("dataset", f"unknown: {alone}", "unknown")
    with mistakes.noted():
        if recipe.links is not None and recipe.links.relation is not None:
            raise document.error("links", f"relation: {alone}", "relation")
    with mistakes.noted():
        if recipe.train is not None and recipe.train.mode.on_types:
            where = document.where("train", "relation" if recipe.train.mode.relation else "of_type")
            needs = "of_type and relation need [[relations]]"
            raise InputError(f"{where}: [train]: the recipe has no [[relations]]; {needs}")
    with mistakes.noted():
        for name in ("balance", "reverse", "replicate"):
            if partition is not None and getattr(partition, name):
                raise document.error("partition", f"{name}: only graphs with types have it; remove the key", name)
    mistakes.check()


def _check_links(document: Document, recipe: Recipe) -> None:
    """Check that links name a relation of the recipe."""
    links, relations = recipe.links, [each.name for each in recipe.relations]
    if links is None or links.relation in relations:
        return
    if links.relation is None:
        raise document.error(
            "links",
            ": the recipe has [[relations]]; name the relation whose edges are the pairs with the key relation:"
            f" {', '.join(relations)}",
        )
    # Rows of a table may name relations.
    if BY_ROW not in relations:
        meant = did_you_mean(links.relation, relations, "there are")
        unknown = f"relation: no relation {links.relation!r} in [[relations]]; {meant}"
        raise document.error("links", unknown, "relation")


def _check_training(document: Document, recipe: Recipe) -> None:
    """Check that training uses types, and the pairs of the relation of its links."""
    if recipe.train is None:
        return
    mode = recipe.train.mode
    if not mode.on_types:
        where = document.where("train", "of_type")
        raise InputError(f"{where}: [train]: the recipe has [[relations]]; name of_type, or relation and links")
    if mode.relation != (None if recipe.links is None else recipe.links.relation):
        wanted = f'relation = "{mode.relation}"' if mode.relation else "no [links], which labels do not need"
        raise InputError(f"{document.where('train')}: [train]: it needs {wanted} in [links]")


def _check_distinct_types(document: Document, recipe: Recipe) -> None:
    """Check that no two types are meant to be one."""
    seen: list[str] = []
    named: list[tuple[str, Any, tuple[str, ...]]] = [
        (entry, each, ("source", "target"))
        for entry, each in zip(document.entries("relations"), recipe.relations, strict=True)
    ]
    named += [(entry, each, ("type",)) for entry, each in zip(document.entries("vertices"), recipe.lists, strict=True)]
    for entry, each, keys in named:
        for key in keys:
            name = getattr(each, key)
            if name != BY_ROW and name not in seen:
                try:
                    check_distinct([*seen, name], "type")
                except InputError as error:
                    raise document.error(entry, f"{key}: {error}", key) from error
                seen.append(name)


def _check_parts(document: Document, recipe: Recipe) -> None:
    """Check the options of partitions and shards against the types of the recipe."""
    partition, shards = recipe.partition, recipe.shards
    types = {name for each in recipe.relations for name in (each.source, each.target)}
    types |= {each.type for each in recipe.lists}
    # Types that rows name are not known yet.
    if partition is not None and BY_ROW not in types:
        for key, name in (("balance", partition.balance), *(("replicate", each) for each in partition.replicate)):
            if name not in {"", AUTO, *types}:
                meant = did_you_mean(name, sorted(types), "there are")
                raise document.error("partition", f"{key}: no type {name!r} in the recipe; {meant}", key)
    if shards.reorder != "none":
        raise document.error(
            "shards", "reorder: rows of a graph with types stay in the order of their types; remove the key", "reorder"
        )
    if shards.layout == "grid":
        with document.located("shards"):
            check_typed_grid(shards.options())
