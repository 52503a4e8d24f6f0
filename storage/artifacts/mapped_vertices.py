"""The data of a dataset's vertices for random access, mapped from files that all processes share, and its splits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.format.mapped_copy import ArrayContent, open_copy
from gnnloom.storage.format.vertex_arrays import SPLIT, VERTEX_ARRAYS, label_name

#: Vertices whose split and labels are looked at together.
_PIECE: Final = 1 << 18


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


def split_vertices(
    arrays: Mapping[str, NDArray[Any]], split: str, *, labeled: bool, among: NDArray[Any] | None = None
) -> NDArray[np.int64]:
    """The vertices of a split.

    Args:
        arrays: as :func:`map_vertices` returns them, with a split.
        labeled: leave out vertices without a known label.
        among: (num_asked,) integers, ascending; leave out all other vertices. None for all vertices.

    Returns:
        (num_found,) int64, ascending.
    """
    codes, label = arrays["split"], label_name(arrays)
    found = [np.empty(0, np.int64)]
    for start in range(0, len(codes if among is None else among), _PIECE):
        if among is None:
            some = start + np.flatnonzero(codes[start : start + _PIECE] == SPLIT[split])
        else:
            asked = among[start : start + _PIECE]
            some = asked[codes[asked] == SPLIT[split]].astype(np.int64)
        found.append(some[VERTEX_ARRAYS[label].is_known(np.take(arrays[label], some, axis=0))] if labeled else some)
    return np.concatenate(found)
