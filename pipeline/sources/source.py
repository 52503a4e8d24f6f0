"""What a source of edges or of vertex data is: the protocol that every format implements.

A source is a small picklable description.  It names what it reads (:meth:`identity`, part of the
artifact's key), splits it into ranges that tasks read independently, and yields bounded chunks.
Which worker reads a range, and how a file is cut into ranges, never changes what comes out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

#: Most edges in one chunk: 16 MiB of each of the two id arrays.
CHUNK_EDGES = 1 << 21


@dataclass(frozen=True)
class EdgeChunk:
    """Edges ``source[k] -> target[k]`` as the file lists them.

    Attributes:
        source: (num_edges,) int64, at least 0.
        target: (num_edges,) int64, at least 0.
        weight: (num_edges,) float32, or None.
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    weight: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class SourceRange:
    """What one task reads: rows, bytes or edges ``start`` to ``stop`` of file ``file`` (a number)."""

    file: int
    start: int
    stop: int


class EdgeSource(Protocol):
    """A graph's edges, in some format."""

    def identity(self) -> dict[str, Any]:
        """JSON that names the format, its options and the fingerprints of the files."""
        ...

    def num_vertices(self) -> int | None:
        """The number of vertices where the source states it; None where it is the highest id plus one.

        An id that is not below the stated number is an error of the source's :meth:`read`.
        """
        ...

    def ranges(self) -> Sequence[SourceRange]:
        """Non-overlapping ranges that cover the source; each takes a task about a second."""
        ...

    def read(self, part: SourceRange) -> Iterator[EdgeChunk]:
        """Chunks of at most ``CHUNK_EDGES`` edges of one range.

        Raises:
            InputError: something in the file is not an edge; the message names the file and the line or edge.
        """
        ...


class VertexSource(Protocol):
    """Features, labels and split of vertices: a row of each per vertex."""

    @property
    def arrays(self) -> tuple[str, ...]:
        """Which there are of ``feature``, ``label`` or ``multilabel``, and ``split``."""
        ...

    @property
    def random_access(self) -> bool:
        """Rows can be read from anywhere at no cost, so that several tasks may share an array."""
        ...

    @property
    def in_graph_order(self) -> bool:
        """Row k belongs to vertex k of the stored graph; else to the vertex that the raw edges call k."""
        ...

    def identity(self) -> dict[str, Any]:
        """JSON that names the format, its options and the fingerprints of the files."""
        ...

    def num_vertices(self) -> int:
        """Rows of the features, labels and split."""
        ...

    def num_features(self) -> int:
        """Columns of the features; 0 where there are none."""
        ...

    def read_rows(self, array: str, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """Rows ``start`` to ``stop`` of one of :attr:`arrays`, in consecutive blocks.

        A block has any bounded size, save for a split that the source gives as lists of ids: that
        needs one byte per vertex, and comes as one block.

        ``feature``: (num_rows, num_features) float32, finite.  ``label``: (num_rows,) int32, classes
        from 0, -1 where there is none.  ``multilabel``: (num_rows, num_labels) int8, 1 or 0, -1 where it is not known.
        ``split``: (num_rows,) uint8 as in ``gnnloom.storage.artifacts.vertices.SPLIT``.

        Raises:
            InputError: another number of rows or columns than announced, something that is no number, NaN or
                infinite features, a label or split out of range; the message names file or array, and line or row.
        """
        ...


@runtime_checkable
class MultilabelSource(VertexSource, Protocol):
    """A source whose vertices may have several labels each."""

    def num_labels(self) -> int:
        """Columns of the ``multilabel`` matrix; 0 where there is none."""
        ...
