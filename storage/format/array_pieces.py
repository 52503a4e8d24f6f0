"""Arrays that are written from ranges of rows of any size, by one task or by several: with the same bytes and digest.

Each of several tasks has a range of the rows, and writes the chunks that lie within it. The rows of a chunk that it
shares with others are its *edges*, which it leaves to the task that joins the pieces. That task writes the shared
chunks, and computes the digest of all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from gnnloom.storage.errors import InputError
from gnnloom.storage.format.array_metadata import METADATA, ArrayMetadata, remove_unfinished
from gnnloom.storage.format.array_record import CHECKSUM_DIGITS, ArrayRecord, Piece
from gnnloom.storage.format.arrays import Array, ArrayReader, bytes_of, new_metadata, record_of
from gnnloom.storage.format.chunks import ChunkWriter
from gnnloom.storage.wording import counted


@dataclass(frozen=True)
class ArrayForm:
    """Form of an array, known to every task that writes the array.

    Attributes:
        path: path of the array below the folder of the artifact.
        shape: sizes of the dimensions.
        dims: names of the dimensions.
        chunk_rows: rows per chunk; None for chunks of the default size.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    dims: tuple[str, ...]
    chunk_rows: int | None = None

    @property
    def metadata(self) -> ArrayMetadata:
        return new_metadata(self.shape, self.dtype, self.dims, self.chunk_rows)

    def opened(self, root: Path, *, is_alone: bool) -> ChunkWriter:
        """Write to the array, which is created.

        Args:
            is_alone: whether this is the only writer; otherwise the first writer creates the array.
        """
        where, metadata = root / self.path, self.metadata
        if is_alone:
            metadata.create(where)
        elif not (where / METADATA).exists():
            # Other writers may do the same at this moment; all write the same metadata.
            where.mkdir(parents=True, exist_ok=True)
            metadata.rewrite(where)
        return ChunkWriter(where, metadata)


class Edge(NamedTuple):
    """Rows of a chunk that has rows of other writers as well.

    Attributes:
        first: number of the first row.
        rows: (count, ...) the rows.
    """

    first: int
    rows: NDArray[Any]


class ArrayAppender:
    """Writes an array of known length, or a piece of it, from rows in order; holds at most one chunk in memory.

    Used by one process: call :meth:`append` with any number of rows at a time, then :meth:`close`.
    """

    def __init__(
        self,
        root: Path,
        form: ArrayForm,
        piece: tuple[int, int] | None = None,
        leave: Callable[[Edge], None] | None = None,
    ) -> None:
        """Begin with the first row.

        Args:
            root: folder of the artifact.
            piece: first and last (exclusive) row of one of several writers; by default all rows.
            leave: keeps an edge for :func:`join_pieces`; called at most twice, and the rows of the edge change
                afterwards. None if there is no other writer.
        """
        rows = (0, form.shape[0]) if piece is None else piece
        self._where, self._form, self._rows, self._at, self._leave = root / form.path, form, rows, rows[0], leave
        self._metadata = form.metadata
        self._chunks = form.opened(root, is_alone=leave is None)
        self._pending: Array = np.empty((self._metadata.chunks[0], *form.shape[1:]), self._metadata.dtype)
        self._filled = 0
        self._hash = xxhash.xxh3_128()
        self._written: tuple[int, int] | None = None
        self._checksums: list[str] = []

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows at the end; a chunk is written as soon as it is full.

        Args:
            rows: (count, ...), of any length.

        Raises:
            InputError: the range has no room for these rows.
        """
        if self._at + len(rows) > self._rows[1]:
            raise InputError(f"{self._where}: {counted(self._at + len(rows), 'row')} appended to {self._room}")
        taken, length = 0, self._metadata.chunks[0]
        while taken < len(rows):
            end = min(self._at // length * length + length, self._form.shape[0])
            count = min(end - self._at, len(rows) - taken)
            self._pending[self._filled : self._filled + count] = rows[taken : taken + count]
            self._filled, self._at, taken = self._filled + count, self._at + count, taken + count
            if self._at == end:
                self._flush()

    def close(self) -> ArrayRecord:
        """Return the record of the written array.

        Raises:
            InputError: fewer rows were appended than the range has.
        """
        if self._at != self._rows[1]:
            raise InputError(f"{self._where}: rows up to {self._at} appended to {self._room}")
        self._flush(is_whole=False)
        # An array of one writer is one piece, even without rows.
        written = self._rows if self._leave is None else self._written
        pieces = [Piece(*written, self._hash.hexdigest(), "".join(self._checksums))] if written else []
        return record_of(self._form.path, self._metadata, *pieces)

    @property
    def _room(self) -> str:
        return f"a range up to {self._rows[1]} of an array of {self._form.shape[0]}"

    def _flush(self, *, is_whole: bool = True) -> None:
        first, rows = self._at - self._filled, self._pending[: self._filled]
        self._filled = 0
        if not len(rows):
            return
        if not is_whole or first % self._metadata.chunks[0]:
            if self._leave is None:
                raise InputError(f"{self._where}: the only writer left rows from {first} on")
            self._leave(Edge(first, rows))
            return
        self._checksums.append(self._chunks.write(first, rows))
        self._hash.update(bytes_of(rows))
        self._written = (self._written[0] if self._written else first, self._at)


def join_pieces(root: Path, form: ArrayForm, pieces: Sequence[Piece], edges: Iterable[Edge]) -> ArrayRecord:
    """Write the chunks that several tasks share, and read the others; holds a chunk in memory.

    Args:
        root: folder of the artifact.
        pieces: of all tasks.
        edges: of all tasks, by first row; one in memory at a time.

    Returns:
        The record of the whole array, with all rows as one piece.

    Raises:
        CorruptError: a chunk is not the one that a task wrote.
        InputError: pieces and edges do not cover the array.
    """
    metadata, chunks = form.metadata, form.opened(root, is_alone=False)
    remove_unfinished(root / form.path)
    written = record_of(form.path, metadata, *pieces)
    stored, length, num_rows = ArrayReader(root, written), metadata.chunks[0], form.shape[0]
    buffer: Array = np.empty((length, *form.shape[1:]), metadata.dtype)
    state, checksums, shared = xxhash.xxh3_128(), [], _Edges(form.path, iter(edges))
    # Rows without elements are in no chunk.
    for number, first in enumerate(range(0, num_rows if buffer.size else 0, length)):
        rows = buffer[: min(length, num_rows - first)]
        checksum = written.checksum(number, length)
        if len(checksum) == CHECKSUM_DIGITS:
            stored.read(first, first + len(rows), rows)
        else:
            shared.fill(first, rows)
            checksum = chunks.write(first, rows)
        checksums.append(checksum)
        state.update(bytes_of(rows))
    return record_of(form.path, metadata, Piece(0, num_rows, state.hexdigest(), "".join(checksums)))


class _Edges:
    """Consecutive edges, which fill chunks."""

    def __init__(self, path: str, edges: Iterator[Edge]) -> None:
        self._path, self._edges = path, edges

    def fill(self, first: int, rows: NDArray[Any]) -> None:
        """Fill the rows from ``first`` on, which are whole edges."""
        done = 0
        while done < len(rows):
            edge = next(self._edges, None)
            if edge is None or edge.first != first + done or len(edge.rows) > len(rows) - done:
                raise InputError(f"{self._path}: no task wrote the rows from {first + done} on")
            rows[done : done + len(edge.rows)] = edge.rows
            done += len(edge.rows)
