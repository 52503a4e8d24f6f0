"""Keys of the artifacts of a recipe, computed by the stages' own functions from parameters and inputs alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gnnloom.pipeline.ingest.stage import graph_key
from gnnloom.pipeline.ingest.vertices import vertices_key
from gnnloom.pipeline.partition.stage import partition_key
from gnnloom.pipeline.samples.stage import samples_key
from gnnloom.pipeline.shards.grid.grid_stage import grid_shards_key
from gnnloom.pipeline.shards.rows.row_stage import row_shards_key
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.workflows.recipe.recipe import Recipe


def artifact_keys(recipe: Recipe, memory: int) -> dict[str, str]:
    """Compute the key of every artifact that a recipe makes, by stage, in the order of the stages.

    Args:
        memory: bytes per worker, which is part of the multilevel partitioner's key.

    Raises:
        InputError, NotFoundError: the file of a source does not exist, or is not what it should be.
    """
    with _named_section(recipe, "source"):
        edges = recipe.source.open(undirected=recipe.dataset.undirected)
        keys = {"graph": graph_key(edges, recipe.dataset.options())}
    with _named_section(recipe, "vertices"):
        identity = recipe.vertices.identity(recipe.source)
    if identity is not None:
        keys["vertices"] = vertices_key(identity, keys["graph"])
    if recipe.partition is not None:
        keys["partition"] = partition_key(keys["graph"], recipe.partition, memory)
    keys["shards"] = _shards_key(recipe, keys)
    if recipe.sampled is not None:
        # One rank owns all vertices, so its samples do not depend on a partition.
        read = ("graph", "vertices", *(("partition",) if recipe.sampled.ranks > 1 else ()))
        keys["samples"] = samples_key({kind: keys[kind] for kind in read if kind in keys}, recipe.sampled)
    return keys


@contextmanager
def _named_section(recipe: Recipe, section: str) -> Iterator[None]:
    """Begin errors about a section's files and numbers with the recipe and the section."""
    try:
        yield
    except (InputError, NotFoundError) as error:
        # Keep the class of the error, as callers distinguish a missing file from a bad one.
        kind = NotFoundError if isinstance(error, NotFoundError) else InputError
        raise kind(f"{recipe.source_name}: [{section}] {error}") from error


def _shards_key(recipe: Recipe, inputs: Mapping[str, str]) -> str:
    partition = recipe.partition
    # A recipe with grid shards has a partition only if their permutation follows it.
    if recipe.grid is not None:
        return grid_shards_key(recipe.grid, inputs, *((partition.parts, partition.method) if partition else ()))
    if partition is None:
        raise InputError(f"{recipe.source_name}: row shards need a partition")
    return row_shards_key(partition.parts, partition.method, inputs, recipe.shards.reorder)
