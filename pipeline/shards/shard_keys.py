"""The keys of shards, and the inputs and parameters that decide them, which are known before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnnloom.pipeline.shards.shard_options import GridOptions
from gnnloom.storage.format.artifact import artifact_key
from gnnloom.storage.format.schema import TYPED_VERSION


def row_shards_key(parts: int, method: str, inputs: Mapping[str, str], reorder: str = "none") -> str:
    """Compute the key of the artifact that :func:`shard_rows` makes or finds.

    Args:
        parts: number of parts of the partition.
        method: method of the partition.
        inputs: kind to key of the graph, the partition and, if there are any, the vertices.
        reorder: order of a rank's rows.
    """
    return artifact_key("shards", row_parameters(parts, method, reorder), inputs)


def row_parameters(parts: int, method: str, reorder: str) -> dict[str, Any]:
    """Parameters of row shards; an order is a parameter only if the rows have one."""
    ordered = {} if reorder == "none" else {"reorder": reorder}
    return {"layout": "row", "parts": parts, "method": method, **ordered}


def typed_inputs(graph: str, partition: str, vertices: Mapping[str, str]) -> dict[str, str]:
    """Kind to key of everything that typed row shards are made from.

    Args:
        graph, partition: their keys.
        vertices: keys of the vertex data by type.
    """
    return {"graph": graph, "partition": partition} | {f"vertices/{name}": vertices[name] for name in sorted(vertices)}


def typed_row_shards_key(
    parts: int, method: str, inputs: Mapping[str, str], *, reverse: bool, replicate: tuple[str, ...] = ()
) -> str:
    """Key of the artifact that :func:`shard_typed_rows` makes or finds.

    Args:
        parts: number of parts of the partition.
        method: method of the partition.
        inputs: keys of the graph, the partition, and the vertex data as ``vertices/TYPE``.
        reverse: whether the partition counts the reverses of the relations.
        replicate: types that the partition was asked to replicate, or ``auto``.
    """
    parameters = typed_row_parameters(parts, method, reverse=reverse, replicate=replicate)
    return artifact_key("shards", parameters, inputs, TYPED_VERSION)


def typed_row_parameters(parts: int, method: str, *, reverse: bool, replicate: tuple[str, ...]) -> dict[str, Any]:
    """Parameters of row shards of a graph with types."""
    chosen = {"layout": "row", "parts": parts, "method": method} | ({"reverse": True} if reverse else {})
    return chosen | ({"replicate": list(replicate)} if replicate else {})


def grid_shards_key(
    options: GridOptions, inputs: Mapping[str, str], parts: int | None = None, method: str | None = None
) -> str:
    """Compute the key of the artifact that :func:`shard_grid` makes or finds.

    Args:
        options: grid, permutation and seed.
        inputs: kind to key of the graph and, if there are any, the vertices and the partition.
        parts: number of parts of the partition, for permutation ``partition``.
        method: method of the partition, likewise.
    """
    return artifact_key("shards", options.parameters(parts, method), inputs)


def typed_grid_inputs(graph: str, vertices: Mapping[str, str]) -> dict[str, str]:
    """Kind to key of everything that the grid shards of a graph with types are made from.

    Args:
        graph: its key.
        vertices: keys of the vertex data by type.
    """
    return {"graph": graph} | {f"vertices/{name}": vertices[name] for name in sorted(vertices)}


def typed_grid_shards_key(options: GridOptions, inputs: Mapping[str, str]) -> str:
    """Key of the artifact that :func:`shard_typed_grid` makes or finds.

    Args:
        inputs: result of :func:`typed_grid_inputs`.
    """
    return artifact_key("shards", options.parameters(), inputs, TYPED_VERSION)
