"""Keys of edges, which decide their splits: random numbers, or times and random numbers; any task computes them.

A key is a number of one or two words, most significant word first. A random key is a word of 64 bits. A key by
time begins with a word that descends as times ascend, and ends with the random one, which orders edges of one time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.links.options import MOST_CLASS
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage.artifacts.block_matrix import BlockMatrix
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.links import CLASS, NUMBER, PAIR, VALUE_DTYPES
from gnnloom.storage.artifacts.typed.typed_graph import Relation, TypedGraph
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.csr import TIME_BYTES
from gnnloom.storage.matrix.permutation import GOLDEN, mix
from gnnloom.storage.matrix.ticks import date_of
from gnnloom.storage.shards.block_ranges import RANGE_BYTES, row_ranges

#: Bytes of an entry while the pairs of a block are read: row, column, weight, source, target, random word and a copy.
_ENTRY_BYTES: Final = 64
#: Further bytes for the edges of a relation: their positions.
_POSITION_BYTES: Final = 8
#: Bytes of a value on disk, at most, and of the values of an entry in memory: as read, chosen, compared and converted.
_WORD_BYTES: Final = 8
_VALUE_BYTES: Final = 32
#: Columns of a relation that have the values of its edges, by kind.
VALUE_COLUMNS: Final[Mapping[str, str]] = MappingProxyType({CLASS: "label", NUMBER: "weight"})
#: Bits of the random word, and of the word of the time.
_RANDOM_BITS: Final = 64
TIME_BITS: Final = 8 * TIME_BYTES


class Directions(Enum):
    """Relation between the two directions of an edge of a directed graph.

    Attributes:
        APART: two edges, each with a key of its own.
        TOGETHER: two edges with the same random word, so that one is held out if the other one is.
        ONE_PAIR: one edge, as in a symmetric graph; every edge of the graph has its reverse.
    """

    APART = "apart"
    TOGETHER = "together"
    ONE_PAIR = "one pair"


def open_matrix(path: Path, relation: str = "") -> BlockMatrix:
    """Open a graph, or a relation of a graph with types, by the folder of the graph artifact."""
    return TypedGraph(Artifact(path)).relation(relation) if relation else Graph(Artifact(path))


def can_have_loops(matrix: BlockMatrix) -> bool:
    """Whether an entry of a row in the column of the same number is a loop: both ends have one type."""
    return not isinstance(matrix, Relation) or matrix.source == matrix.target


@dataclass(frozen=True)
class EdgeKeys:
    """The edges of a stored graph, or of one of its relations, with their keys; small and picklable.

    Edges of a symmetric graph are counted once, from the smaller vertex to the larger. Loops are left out. Parallel
    edges have the same random word.

    Attributes:
        path: folder of the graph artifact.
        stream: key of the stream of random numbers.
        times: folder of the graph artifact that has the times of the edges, if keys begin with these; it may be another
            one with the same entries.
        directions: relation between the two directions of an edge; a symmetric graph has none.
        relation: name of the relation, in a graph with types, whose own times the edges have.
        kind: kind of the values of the edges: their label as a ``class``, their weight as a ``number``, or none for
            ``pair``.
    """

    path: Path
    stream: int
    times: Path | None = None
    directions: Directions = Directions.APART
    relation: str = ""
    kind: str = PAIR

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Bits of the words of a key."""
        return (TIME_BITS, _RANDOM_BITS) if self.times is not None else (_RANDOM_BITS,)

    @property
    def key_bits(self) -> int:
        """Bits of a key."""
        return sum(self.widths)

    def reading_bytes(self, scratch: Scratch) -> int:
        """Bytes that a task holds while it reads the pairs of a block."""
        # By time, a word more, its copy, the time, and the column of another graph or, of a relation, the position.
        more = 32 if self.times is not None else _POSITION_BYTES if self.relation else 0
        more += 0 if self.kind == PAIR else _VALUE_BYTES
        return RANGE_BYTES + (_ENTRY_BYTES + more) * scratch.step_entries

    def read_bytes(self, sizes: GraphSizes, block: int) -> int:
        """Bytes of a row block of the graph that is read with its keys."""
        rows, nnz = sizes.block_rows[block], sizes.block_nnz[block]
        more = (TIME_BYTES if self.times is not None else 0) + (_WORD_BYTES if self.kind != PAIR else 0)
        return (sizes.entry_bytes + more) * nnz + 8 * (rows + 1)

    def date_of(self, word: int) -> str:
        """The date of the word of a time, for messages; nothing for times that are numbers."""
        unit = "" if self.times is None else open_matrix(self.times, self.relation).time_unit
        return f", {date_of((~word & (1 << TIME_BITS) - 1) - (1 << TIME_BITS - 1), unit)}" if unit else ""

    def words_of(self, key: int) -> tuple[int, ...]:
        """The words of a key."""
        words, left = [], self.key_bits
        for width in self.widths:
            left -= width
            words.append(key >> left & (1 << width) - 1)
        return tuple(words)

    def read(self, block: int, scratch: Scratch) -> Iterator[KeyedPairs]:
        """The edges of a row block, by row and column, in steps of the sizes of ``scratch``."""
        matrix = open_matrix(self.path, self.relation)
        columns, weights, first = matrix.columns(block), matrix.weights(block), sum(matrix.block_nnz[:block])
        times = None if self.times is None else self._times_of(matrix, block)
        symmetric = isinstance(matrix, Graph) and (matrix.symmetric or self.directions is Directions.ONE_PAIR)
        has_loops, last = can_have_loops(matrix), -1
        for span in row_ranges(matrix, block, scratch.range_rows):
            for start, stop in columns.ranges(scratch.step_entries, int(span.pointers[0]), int(span.pointers[-1])):
                column = columns.read(start, stop)
                count, left_out, source, target, chosen = _pairs(
                    span.first, span.pointers, start, column, symmetric, has_loops, last
                )
                last = int(column[-1])
                source, target = source[:count], target[:count]
                weight = None if weights is None else weights.read(start, stop)[chosen[:count]]
                ends = source, target
                if self.directions is Directions.TOGETHER:
                    ends = np.minimum(source, target), np.maximum(source, target)
                words: tuple[NDArray[np.uint64], ...] = (pair_keys(np.uint64(self.stream), *ends),)
                if times is not None:
                    words = _lateness(times(start, stop, column)[chosen[:count]]), *words
                edge = first + start + chosen[:count] if self.relation else None
                value = None
                if self.kind != PAIR:
                    value = self._values_of(matrix, block, start, stop)[chosen[:count]]
                yield KeyedPairs(source, target, words, weight, left_out, edge, value)

    def _values_of(self, matrix: BlockMatrix, block: int, start: int, stop: int) -> NDArray[Any]:
        """(stop - start,) int64 classes or float32 numbers of some entries of a block of a relation.

        Raises:
            InputError: a label is not a class, or a weight not a finite number.
        """
        if not isinstance(matrix, Relation):
            raise TypeError("only the edges of a relation have values")
        column, stored, first = VALUE_COLUMNS[self.kind], matrix.weights(block), matrix.first_edge(block)
        if stored is not None and self.kind == NUMBER:
            # The only number of each edge is in the blocks.
            found = stored.read(start, stop)
        else:
            found = matrix.column(column, first + start, first + stop)
        found = found.astype(VALUE_DTYPES[self.kind], copy=False)
        fits = (found >= 0) & (found < MOST_CLASS) if self.kind == CLASS else np.isfinite(found)
        if not fits.all():
            at = int(np.argmin(fits))
            expected = f"a class from 0 to {MOST_CLASS - 1:,}, or words" if self.kind == CLASS else "a finite number"
            raise InputError(
                f"{matrix.where}: {column} {found[at]} of edge {first + start + at:,} (--values {self.kind}); expected"
                f" {expected}"
            )
        return found

    def _times_of(self, matrix: BlockMatrix, block: int) -> Callable[[int, int, NDArray[Any]], NDArray[Any]]:
        """Function that reads the times of some entries of a block; see :meth:`_Times.read`."""
        if isinstance(matrix, Graph):
            return _Times(matrix.artifact.path if self.times is None else self.times, matrix, block).read
        stored, first = matrix.times(block), sum(matrix.block_nnz[:block])

        def read(start: int, stop: int, columns: NDArray[Any]) -> NDArray[Any]:
            del columns
            if stored is not None:
                found = stored.read(start, stop)
            elif isinstance(matrix, Relation):
                found = matrix.column("time", first + start, first + stop)
            return _checked_times(found, f"{matrix.where}: block {block}")

        return read


class _Times:
    """The times of the entries of a row block, which another graph with the same entries may have."""

    def __init__(self, path: Path, graph: Graph, block: int) -> None:
        """Open them.

        Raises:
            InputError: the other graph has none, or another number of entries in a row.
        """
        self._where, self._block = path, block
        other = graph if path == graph.artifact.path else Graph(Artifact(path))
        times = other.times(block) if block < other.num_blocks else None
        if times is None:
            raise InputError(f"{path}: the edges have no times")
        self._times, self._columns = times, None if other is graph else other.columns(block)
        if other is not graph and not np.array_equal(other.pointers(block), graph.pointers(block)):
            raise self._different()

    def read(self, start: int, stop: int, columns: NDArray[Any]) -> NDArray[Any]:
        """(stop - start,) float64 or int64 times of some entries.

        Args:
            columns: (stop - start,) of the graph.

        Raises:
            InputError: the other graph has other columns, or a time is not a number.
        """
        if self._columns is not None and not np.array_equal(self._columns.read(start, stop), columns):
            raise self._different()
        return _checked_times(self._times.read(start, stop), f"{self._where}: block {self._block}")

    def _different(self) -> InputError:
        return InputError(
            f"{self._where}: block {self._block} has other edges than the graph; ingest both from the same edges, with"
            " the same options but for --merge"
        )


def _checked_times(times: NDArray[Any], where: str) -> NDArray[Any]:
    if np.isnan(times).any():
        raise InputError(f"{where} has an edge whose time is not a number")
    return times


def _lateness(time: NDArray[Any]) -> NDArray[np.uint64]:
    """(num_pairs,) uint64 words that descend as times ascend."""
    sign = np.uint64(1 << TIME_BITS - 1)
    if time.dtype.kind == "i":
        return ~(time.view(np.uint64) ^ sign)
    # Zero has two signs, and is one time. Positive floats are ordered as their bits, negative ones the other way.
    bits = (time + 0.0).view(np.uint64)
    return np.where(bits & sign, bits, ~(bits | sign))


@dataclass(frozen=True)
class KeyedPairs:
    """Some edges.

    Attributes:
        source, target: (num_pairs,) int64 ends of each.
        words: (num_pairs,) uint64 words of the keys, one array for each word.
        weight: (num_pairs,) weights, or None for a pattern.
        left_out: loops, and entries in the row and column of the one before, among the entries that were read for them.
        edge: (num_pairs,) int64 positions among the edges of the relation; None for a graph without types.
        value: (num_pairs,) int64 classes or float32 numbers; None if pairs have no values.
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    words: tuple[NDArray[np.uint64], ...]
    weight: NDArray[Any] | None
    left_out: int
    edge: NDArray[np.int64] | None = None
    value: NDArray[Any] | None = None

    def above(self, key: tuple[int, ...]) -> NDArray[np.bool_]:
        """(num_pairs,) whether the keys are above one, which is given by its words."""
        found = self.words[-1] > np.uint64(key[-1])
        for word, limit in zip(self.words[-2::-1], key[-2::-1], strict=True):
            found = (word > np.uint64(limit)) | (word == np.uint64(limit)) & found
        return found


def pair_keys(stream: np.uint64, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.uint64]:
    """(num_pairs,) uint64 keys: number ``target`` of the stream whose key is number ``source`` of a stream.

    Two pairs have equal keys with a probability of 2^-64.
    """
    keys = np.empty(len(source), np.uint64)
    _fill_keys(stream, source, target, keys)
    return keys


@kernel
def _fill_keys(
    stream: np.uint64, source: NDArray[np.int64], target: NDArray[np.int64], out: NDArray[np.uint64]
) -> None:
    for k in range(len(out)):
        # Of each end one more, as ``mix`` maps 0 to itself.
        own = mix(stream + (np.uint64(source[k]) + np.uint64(1)) * GOLDEN)
        out[k] = mix(own + (np.uint64(target[k]) + np.uint64(1)) * GOLDEN)


@kernel
def _pairs(
    first_row: int,
    pointers: NDArray[np.int64],
    start: int,
    columns: NDArray[Any],
    symmetric: bool,
    has_loops: bool,
    last: int,
) -> tuple[int, int, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The edges among consecutive entries of a block.

    Args:
        first_row: row of the matrix to which the first pointer belongs.
        pointers: (num_rows + 1,) int64 positions of rows.
        start: position of the first entry, which may lie within a row.
        columns: (num_entries,) columns of the entries.
        has_loops: an entry of a row in the column of the same number is a loop.
        last: column of the entry before the first one.

    Returns:
        How many there are, how many entries are loops or in the row and column of the entry before, and arrays of at
        least one element per edge: source, target, and place among the entries.
    """
    source = np.empty(len(columns), np.int64)
    target, chosen = np.empty_like(source), np.empty_like(source)
    row, count, left_out = 0, 0, 0
    for k in range(len(columns)):
        while pointers[row + 1] <= start + k:
            row += 1
        here, column = first_row + row, np.int64(columns[k])
        # The entry (row, column) is the edge column -> row.
        is_loop = has_loops and column == here
        if is_loop or (column == last and start + k > pointers[row]):
            left_out += 1
        last = int(column)
        if not is_loop and (column <= here or not symmetric):
            source[count], target[count], chosen[count] = column, here, k
            count += 1
    return count, left_out, source, target, chosen
