"""Cuts windows out of the cells of grid shards; reads every chunk that is needed once, and few others.

A window is assembled in strips of rows, so that only the result and one strip of its cells are in memory. If a window
needs only some columns of a cell, they are read as rows of the transposed variant when that reads less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.offsets import check_some_offsets
from gnnloom.storage.format.arrays import Array, ArrayReader
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.csr import CSR, index_dtype
from gnnloom.storage.matrix.ranges import Span, common, overlapped, split_range
from gnnloom.storage.matrix.transpose import transposed

#: Strips per row of cells, and the fewest rows of a strip: small strips save memory, large ones save calls.
_STRIPS, _STRIP_ROWS = 16, 64


class Cells(Protocol):
    """The stored cells of one variant of a matrix, and the cells of its transpose."""

    @property
    def num_vertices(self) -> int: ...

    @property
    def grid(self) -> tuple[int, int]: ...

    @property
    def weighted(self) -> bool: ...

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """Dtype of the stored weights."""
        ...

    def is_empty(self, row: int, column: int) -> bool:
        """Whether a cell has no entries, and need not be read."""
        ...

    def array(self, row: int, column: int, name: str) -> ArrayReader:
        """Open ``indptr``, ``indices`` or ``data`` of a cell."""
        ...

    def transposed(self) -> Cells:
        """The cells of the transposed variant."""
        ...


def read_windows(
    cells: Cells, rows: Span, columns: Sequence[Span], dtype: np.dtype[Any], *, may_transpose: bool = True
) -> list[CSR]:
    """Read rows of a variant, in blocks of columns.

    Peak memory is the result, one strip of it, and what one row of cells needs of the transposed variant.

    Args:
        columns: ascending ranges.
        dtype: dtype of the weights.
        may_transpose: allow reading from the transposed variant.

    Returns:
        A matrix for each range of columns, with column ids local to it.
    """
    if not columns:
        return []
    windows = [_Window(rows, span, cells.weighted, dtype) for span in columns]
    for row, kept in overlapped(rows, cells.num_vertices, cells.grid[0]):
        sources = list(_sources(cells, row, kept, columns, may_transpose=may_transpose))
        # All windows take their columns from one strip before the next is read, so that every cell is read once.
        for strip in _strips(kept):
            pieces = [source.strip(strip) for source in sources]
            for window in windows:
                window.append(pieces, strip[1] - strip[0])
    return [window.finish() for window in windows]


def load_kernels() -> None:
    """Load the compiled kernels, so that their memory is not counted as the first window's memory."""
    nothing = CSR(0, np.zeros(2, np.int64), np.empty(0, np.int32), None, 1)
    window = _Window((0, 1), (0, 1), False, np.dtype(np.float32))
    window.append([_Piece(0, transposed(nothing))], 1)


def _strips(rows: Span) -> list[Span]:
    count = max(1, min(_STRIPS, (rows[1] - rows[0]) // _STRIP_ROWS))
    pieces = (split_range(rows[1] - rows[0], count, number) for number in range(count))
    return [(rows[0] + start, rows[0] + stop) for start, stop in pieces]


class _Piece(NamedTuple):
    """Entries of a strip of rows; their column ids count from ``first_column``."""

    first_column: int
    entries: CSR


class _Source(Protocol):
    """Reads some columns of a range of rows."""

    def strip(self, rows: Span) -> _Piece:
        """Entries of the next rows; each call continues where the previous one ended."""
        ...


def _sources(cells: Cells, row: int, rows: Span, columns: Sequence[Span], *, may_transpose: bool) -> Iterator[_Source]:
    """The sources of ``columns`` in one row of cells."""
    whole = (columns[0][0], columns[-1][1])
    for column, _ in overlapped(whole, cells.num_vertices, cells.grid[1]):
        span = split_range(cells.num_vertices, cells.grid[1], column)
        overlaps = [shared for shared in (common(span, wanted) for wanted in columns) if shared[0] < shared[1]]
        if not overlaps or cells.is_empty(row, column):
            continue
        needed = (overlaps[0][0], overlaps[-1][1])
        # Some rows of a CSR matrix can be read without the others, but some columns cannot: they cost the whole width
        # of their cell, unless they are read as rows of the transposed variant. The smaller area is the cheaper one.
        directly = (rows[1] - rows[0]) * (span[1] - span[0])
        transposed_area = (needed[1] - needed[0]) * _width_read(rows, cells)
        use_transpose = may_transpose and transposed_area < directly
        yield _TransposedCells(cells, rows, needed) if use_transpose else _Cell(cells, row, column)


def _width_read(columns: Span, cells: Cells) -> int:
    """Total width of the cells that overlap these columns."""
    touched = overlapped(columns, cells.num_vertices, cells.grid[1])
    spans = [split_range(cells.num_vertices, cells.grid[1], column) for column, _ in touched]
    return sum(stop - start for start, stop in spans)


class ForwardReader:
    """Reads ascending ranges of rows; a chunk that two successive ranges share is read once.

    A range may begin with the last row of the previous one.
    """

    def __init__(self, array: ArrayReader) -> None:
        self._array = array
        self._start = 0
        self._held = np.empty((0, *array.shape[1:]), array.dtype)

    def read(self, start: int, stop: int) -> Array:
        """Read rows ``start`` to ``stop``."""
        # ``held`` begins at ``start``: rows that earlier ranges have read and this one may need again.
        held, first = self._held[start - self._start :], start
        known = start + len(held)
        if stop > known:
            chunk = self._array.chunk_rows
            # Read from the first row that is not held, or else from the beginning of its chunk, to the end of a chunk:
            # the rest of that chunk is kept for the next range.
            known = known if len(held) else start - start % chunk
            fresh = self._array.read(known, min(-(-stop // chunk) * chunk, len(self._array)))
            held, first = (np.concatenate([held, fresh]), start) if len(held) else (fresh, known)
        # The last row is kept: the next range of row pointers begins with it.
        self._start = max(start, stop - 1)
        # A copy: a view would keep all rows that were read in memory.
        self._held = held[self._start - first :].copy()
        return held[start - first : stop - first]


class _Cell:
    """Reads from one stored cell."""

    def __init__(self, cells: Cells, row: int, column: int) -> None:
        self._first_row = split_range(cells.num_vertices, cells.grid[0], row)[0]
        self._columns = split_range(cells.num_vertices, cells.grid[1], column)
        pointers, indices = (cells.array(row, column, name) for name in ("indptr", "indices"))
        self._where, self._num_entries = pointers.where, len(indices)
        self._indptr, self._indices = ForwardReader(pointers), ForwardReader(indices)
        self._data = ForwardReader(cells.array(row, column, "data")) if cells.weighted else None

    def strip(self, rows: Span) -> _Piece:
        indptr = self._indptr.read(rows[0] - self._first_row, rows[1] - self._first_row + 1)
        check_some_offsets(self._where, indptr, self._num_entries)
        first, last = int(indptr[0]), int(indptr[-1])
        data = self._data.read(first, last) if self._data else None
        width = self._columns[1] - self._columns[0]
        return _Piece(self._columns[0], CSR(rows[0], indptr - first, self._indices.read(first, last), data, width))


class _TransposedCells:
    """Reads rows and columns as columns and rows of the transposed variant, all at once."""

    def __init__(self, cells: Cells, rows: Span, columns: Span) -> None:
        # Not strip by strip: the rows of a strip are columns here and are spread over all that is read. Without
        # ``may_transpose``, the two variants could send the request back and forth.
        (read,) = read_windows(cells.transposed(), columns, [rows], cells.stored_dtype, may_transpose=False)
        self._first_row, self._first_column = rows[0], columns[0]
        self._entries = transposed(read)

    def strip(self, rows: Span) -> _Piece:
        indptr = self._entries.indptr[rows[0] - self._first_row : rows[1] - self._first_row + 1]
        chosen = slice(int(indptr[0]), int(indptr[-1]))
        data = None if self._entries.data is None else self._entries.data[chosen]
        entries = CSR(rows[0], indptr - indptr[0], self._entries.indices[chosen], data, self._entries.num_columns)
        return _Piece(self._first_column, entries)


class _Window:
    """A block of columns that grows strip by strip."""

    def __init__(self, rows: Span, columns: Span, weighted: bool, dtype: np.dtype[Any]) -> None:
        self._rows, self._columns, self._filled = rows, columns, 0
        self._indptr = np.zeros(rows[1] - rows[0] + 1, np.int64)
        self._indices = np.empty(0, index_dtype(columns[1] - columns[0]))
        self._data = np.empty(0, dtype) if weighted else None

    def append(self, pieces: Sequence[_Piece], num_rows: int) -> None:
        """Add the next rows: first count the entries of each row, then copy them."""
        start, stop = self._filled, self._filled + num_rows
        # Column ids of a piece count from its own first column, column ids of the window from the window's; the shift
        # may be negative.
        inside = [(piece, self._columns[0] - piece.first_column) for piece in pieces]
        width = self._columns[1] - self._columns[0]
        # A view: the counts of the new rows are summed in place into row pointers.
        ends = self._indptr[start + 1 : stop + 1]
        for piece, shift in inside:
            _count_between(piece.entries.indptr, piece.entries.indices, shift, shift + width, ends)
        np.cumsum(ends, out=ends)
        ends += self._indptr[start]
        self._grow(int(self._indptr[stop]))
        # Pieces come in ascending order of their columns, so appending them one after the other keeps every row sorted.
        position, nothing = self._indptr[start:stop].copy(), np.empty(0, np.float32)
        for piece, shift in inside:
            values = nothing if piece.entries.data is None else piece.entries.data
            data = nothing if self._data is None else self._data
            indptr, indices = piece.entries.indptr, piece.entries.indices
            _copy_between(indptr, indices, values, position, self._indices, data, shift, width)
        self._filled = stop

    def _grow(self, size: int) -> None:
        # The system can grow a large block by remapping its pages, so this needs no second copy.
        # The loop variable is a second reference, which refcheck would refuse; no view of the arrays outlives a call.
        for array in (self._indices, self._data):
            if array is not None:
                array.resize(size, refcheck=False)

    def finish(self) -> CSR:
        return CSR(self._rows[0], self._indptr, self._indices, self._data, self._columns[1] - self._columns[0])


@kernel
def _count_between(
    indptr: NDArray[np.int64], indices: NDArray[Any], start: int, stop: int, counts: NDArray[np.int64]
) -> None:
    # Counted first, so that the window grows once per strip to its exact size.
    for row in range(len(indptr) - 1):
        for entry in range(indptr[row], indptr[row + 1]):
            counts[row] += start <= indices[entry] < stop


@kernel
def _copy_between(
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    values: NDArray[Any],
    position: NDArray[np.int64],
    out: NDArray[Any],
    data: NDArray[Any],
    start: int,
    width: int,
) -> None:
    # ``position`` is the next free entry of each output row; the cells append to it from left to right.
    for row in range(len(indptr) - 1):
        free = position[row]
        for entry in range(indptr[row], indptr[row + 1]):
            column = np.int64(indices[entry]) - start
            if 0 <= column < width:
                out[free] = column
                if len(data):
                    data[free] = values[entry]
                free += 1
        position[row] = free
