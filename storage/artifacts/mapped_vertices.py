"""The data of a dataset's vertices for random access, mapped from files that all processes share, and its splits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.format.mapped_copy import ArrayContent, open_copy
from gnnloom.storage.format.vertex_arrays import SPLIT, VERTEX_ARRAYS, label_name

#: Vertices whose split and labels are compared together.
_PIECE: Final = 1 << 18
#: Stands for no vertex among the codes of a split.
_NO_CODE: Final = 255
#: Vertices per number that tells where the vertices of a split are.
COUNTED: Final = 1 << 8


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


class SplitVertices:
    """The labeled vertices of a split, ascending, as an array that is not in memory: indexing reads the mapped split.

    Memory is 8 bytes for each ``COUNTED`` vertices of the graph, whatever the size of the split.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], split: str) -> None:
        """Count the vertices; for arguments see :func:`split_vertices`."""
        self._arrays, self._split, self._label = arrays, SPLIT[split], label_name(arrays)
        codes = arrays["split"]
        whole = len(codes) // COUNTED * COUNTED
        #: (num_whole, COUNTED) the codes of whole pieces, and (COUNTED,) the codes of the last one, with no code added.
        self._pieces, self._last = codes[:whole].reshape(-1, COUNTED), np.full(COUNTED, _NO_CODE, codes.dtype)
        self._last[: len(codes) - whole] = codes[whole:]
        #: (num_pieces + 1,) int64 vertices of the split before each piece.
        self._before = np.zeros(-(-len(codes) // COUNTED) + 1, np.int64)
        for start in range(0, len(codes), _PIECE):
            first = start // COUNTED
            found = self._known(start + np.flatnonzero(codes[start : start + _PIECE] == self._split))
            counts = np.bincount(found // COUNTED - first)
            self._before[first + 1 : first + 1 + len(counts)] += counts
        np.cumsum(self._before, out=self._before)

    def __len__(self) -> int:
        return int(self._before[-1])

    def __getitem__(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """(num_places,) int64 the vertices at some places."""
        pieces, piece_of = np.unique(np.searchsorted(self._before, places, side="right") - 1, return_inverse=True)
        found, ahead = self._in_pieces(pieces)
        vertices: NDArray[np.int64] = found[places - ahead[piece_of]]
        return vertices

    def places(self, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        """(num_asked,) int64 the places of some vertices of the split."""
        pieces, piece_of = np.unique(vertices // COUNTED, return_inverse=True)
        found, ahead = self._in_pieces(pieces)
        return np.searchsorted(found, vertices) + ahead[piece_of]

    def _in_pieces(self, pieces: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The vertices in some pieces; and for each piece, the place of a vertex less its place in these vertices."""
        # Pieces ascend, so only the last given piece may be the incomplete one.
        codes = np.concatenate([self._pieces[pieces[pieces < len(self._pieces)]], self._last[None]])[: len(pieces)]
        at = np.flatnonzero(codes.ravel() == self._split)
        found = self._known(pieces[at // COUNTED] * COUNTED + at % COUNTED)
        counts = self._before[pieces + 1] - self._before[pieces]
        return found, self._before[pieces] - (np.cumsum(counts) - counts)

    def _known(self, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The vertices with a label."""
        known: NDArray[np.bool_] = VERTEX_ARRAYS[self._label].is_known(
            np.take(self._arrays[self._label], vertices, axis=0)
        )
        return vertices[known]


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
