"""The protocols that every source of edges or vertex data implements.

A source is a small picklable description. Its identity, which enters the artifact's key, names what it reads. It
divides its contents into ranges that tasks read independently, in bounded chunks. Neither the worker that reads a
range nor the way a file is divided into ranges changes the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.csr import TIME_BYTES, WEIGHT_BYTES

#: Maximum number of edges in a chunk: each of the two id arrays takes 16 MiB.
CHUNK_EDGES = 1 << 21
#: Maximum number of columns or classes of data that are made: a row takes a few MiB.
MOST_COLUMNS = 1 << 20


@dataclass(frozen=True)
class EdgeChunk:
    """Edges ``source[k] -> target[k]`` in the order of the file.

    Attributes:
        source: (num_edges,) int64, non-negative.
        target: (num_edges,) int64, non-negative.
        weight: (num_edges,) float32, or None.
        time: (num_edges,) float64, or None; edges have no weights along with their times.
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    weight: NDArray[np.float32] | None = None
    time: NDArray[np.float64] | None = None

    @classmethod
    def valued(
        cls, source: NDArray[np.int64], target: NDArray[np.int64], values: NDArray[Any] | None, *, times: bool
    ) -> EdgeChunk:
        """Edges whose values, if there are any, are times or weights."""
        return cls(source, target, None, values) if times else cls(source, target, values)

    @property
    def values(self) -> NDArray[Any] | None:
        """(num_edges,) weights or times; None if there are neither."""
        return self.weight if self.time is None else self.time

    @property
    def value_bytes(self) -> int:
        """Bytes of the value of an edge, as it is stored; 0 if there are none."""
        return TIME_BYTES if self.time is not None else WEIGHT_BYTES if self.weight is not None else 0

    def __getitem__(self, some: slice) -> EdgeChunk:
        weight = None if self.weight is None else self.weight[some]
        time = None if self.time is None else self.time[some]
        return EdgeChunk(self.source[some], self.target[some], weight, time)


@dataclass(frozen=True)
class SourceRange:
    """Range that one task reads: rows, bytes or edges ``start`` to ``stop`` of file number ``file``; -1 is the end."""

    file: int
    start: int
    stop: int


def even_ranges(file: int, count: int, step: int, start: int = 0) -> list[SourceRange]:
    """Ranges of ``step`` bytes, rows or edges of a file, from ``start`` to ``count``; the last may be shorter."""
    return [SourceRange(file, first, min(first + step, count)) for first in range(start, count, step)]


class OneArray:
    """Common base of sources of a single array of vertex data.

    Attributes:
        array: name of the array.
        width: number of its columns, unless ``num_columns`` gives another one.
    """

    array: str
    width: int

    in_graph_order = False

    @property
    def arrays(self) -> tuple[str, ...]:
        return (self.array,)

    def num_columns(self, array: str) -> int:
        return self.width if array == self.array else 0


class EdgeSource(Protocol):
    """The edges of a graph, in some format."""

    def identity(self) -> dict[str, Any]:
        """JSON with the format, its options and the fingerprints of the files."""
        ...

    def num_vertices(self) -> int | None:
        """The number of vertices that the source states; None if it is the highest id plus one.

        If the source states a number, :meth:`read` must refuse ids that are not below it.
        """
        ...

    def ranges(self) -> Sequence[SourceRange]:
        """Non-overlapping ranges that cover the source; a task reads each in about a second."""
        ...

    def read(self, span: SourceRange, /) -> Iterator[EdgeChunk]:
        """Read one range in chunks of at most ``CHUNK_EDGES`` edges.

        Raises:
            InputError: the file contains something that is not an edge; the message names the file and the line or
                edge.
        """
        ...


@runtime_checkable
class OfTwoTypes(Protocol):
    """Edges whose files may say that their sources and their targets are vertices of two types."""

    @property
    def two_types(self) -> str:
        """The file that says so, with its words, for a message; empty if no file does."""
        ...

    @property
    def type_sizes(self) -> tuple[int, int] | None:
        """Numbers of source and target vertices, with ids from 0; None if no file states them."""
        ...


@runtime_checkable
class Surveyed(Protocol):
    """A source that is read in ranges once a survey of all ranges is known, such as their numbers of lines.

    Tasks survey the ranges before they are read, in the number of rounds that the source asks for.
    """

    def surveys(self) -> Sequence[SourceRange]:
        """The ranges to survey in the next round; none if the source can be read, as one task can read all of it."""
        ...

    def survey(self, span: SourceRange, /) -> list[Any]:
        """The facts about a range, as JSON.

        Raises:
            InputError: something in the range cannot be used.
        """
        ...

    def with_surveys(self, found: Sequence[Sequence[Any]]) -> Self:
        """The same source, with the same identity and the results of all :meth:`surveys`, in their order.

        Raises:
            InputError: the results contradict a file.
        """
        ...


@runtime_checkable
class SurveyedSource(Surveyed, EdgeSource, Protocol):
    """Edges that are surveyed before they are read."""


class VertexData(Protocol):
    """Features, labels and split, in the order of the vertices or, from a :class:`KeyedSource`, in any order."""

    @property
    def arrays(self) -> tuple[str, ...]:
        """The available arrays among ``gnnloom.storage.format.vertex_arrays.VERTEX_ARRAYS``."""
        ...

    @property
    def in_graph_order(self) -> bool:
        """Whether row k belongs to vertex k of the stored graph, rather than to the vertex with the raw id k."""
        ...

    def identity(self) -> dict[str, Any]:
        """JSON with the format, its options and the fingerprints of the files."""
        ...

    def num_vertices(self) -> int:
        """Number of rows of the features, labels and split."""
        ...

    def num_columns(self, array: str) -> int:
        """Number of columns of an array, which is 1 for an array with one dimension; 0 if it is not available."""
        ...


@runtime_checkable
class VertexSource(VertexData, Protocol):
    """Features, labels and split: one row of each per vertex, in ascending order of the vertices."""

    @property
    def random_access(self) -> bool:
        """Whether any range of rows can be read without reading what precedes it, so tasks can share an array."""
        ...

    def read_rows(self, array: str, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """Read rows ``start`` to ``stop`` of one of :attr:`arrays`, in consecutive blocks.

        Blocks have a bounded size. The exception is a split that the source stores as lists of ids: it comes as one
        block and takes one byte per vertex.

        Yields:
            (num_rows, num_columns), or (num_rows,) if the array has one dimension, of the dtype and within the limits
            of its entry in ``gnnloom.storage.format.vertex_arrays.VERTEX_ARRAYS``.

        Raises:
            InputError: the number of rows or columns is wrong, a value is not a number, a feature is NaN or
                infinite, or a label or split is out of range; the message names the file or array, and the line or
                row.
        """
        ...


@runtime_checkable
class SeparableSource(VertexData, Protocol):
    """A source whose arrays can be read apart, so that one that must be read from its start slows no other."""

    def source_of(self, array: str) -> VertexData:
        """The source of one of :attr:`arrays` alone, or together with others of the same file.

        Raises:
            InputError: the source does not have the array.
        """
        ...


@dataclass(frozen=True)
class TableBlock:
    """Rows of a table that names the vertex of each, in the order of the table.

    Attributes:
        id_offset: (num_rows + 1,) int64; the id of row k is ``id_text[id_offset[k]:id_offset[k + 1]]``.
        id_text: (num_bytes,) uint8.
        values: (num_rows,) or (num_rows, num_columns), of the types that :meth:`VertexSource.read_rows` yields.
        at: (num_rows,) int64 places of the rows in the table, as :meth:`KeyedSource.row_error` expects them.
    """

    id_offset: NDArray[np.int64]
    id_text: NDArray[np.uint8]
    values: NDArray[Any]
    at: NDArray[np.int64]


@runtime_checkable
class KeyedSource(VertexData, Protocol):
    """A table that names the vertex of each row, in any order, possibly with rows of vertices that do not exist.

    It has a single array.
    """

    @property
    def location(self) -> str:
        """The table, for errors."""
        ...

    def ranges(self) -> Sequence[SourceRange]:
        """Non-overlapping ranges that cover the table, in its order."""
        ...

    def read_table(self, span: SourceRange) -> Iterator[TableBlock]:
        """Read one range in blocks of a few MiB.

        Raises:
            InputError: an id or a value cannot be used; the message names the file and the line or row.
        """
        ...

    def row_error(self, at: int, reason: str) -> InputError:
        """The error for the row at a place in the table."""
        ...
