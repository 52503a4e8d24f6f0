"""Finds the vertex data that shards of a graph include."""

from __future__ import annotations

from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import NotFoundError


def find_vertices(dataset: Dataset, graph: str) -> Vertices | None:
    """The vertex data of the graph with this key; if there are none, those of another graph of the dataset.

    Another graph may have the same vertices; the caller checks their number.

    Raises:
        InputError: there are several to choose from.
    """
    try:
        return dataset.vertices(graph=graph)
    except NotFoundError:
        others = any(info.state == "complete" for info in dataset.artifacts("vertices"))
        return dataset.vertices() if others else None
