"""The data of a dataset's vertices for random access, mapped from files that all processes share."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.format.mapped_copy import ArrayContent, open_copy


def map_vertices(vertices: Vertices) -> dict[str, NDArray[Any]]:
    """Map features, labels, targets and the split; see :mod:`gnnloom.storage.format.mapped_copy`.

    Returns:
        (num_vertices, ...) arrays by name, as :class:`Vertices` has them. Indexing one reads the pages of the chosen
        rows only.
    """
    return open_copy(vertices.artifact, vertices_contents(vertices))


def vertices_contents(vertices: Vertices) -> dict[str, ArrayContent]:
    """All arrays of the artifact."""
    return {name: ArrayContent.of(vertices.array(name)) for name in vertices.artifact.records}
