"""MatrixMarket coordinate files (.mtx): the header, and the entries as edges.

The entry "i j" is A[i, j] of the stored graph, the edge j -> i. Ids start from 1 in the file and from 0 in the graph. A
symmetric file lists each edge once and stands for both directions; a skew-symmetric file stands for the second
direction with the opposite sign. Explicit zeros are edges. The entries of large files are counted before they are
read, in ranges, to compare their number with the header.
Boisvert, Pozo, Remington, The Matrix Market Exchange Formats (NISTIR 5935, 1996).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.format import WEIGHTS, Format
from gnnloom.pipeline.sources.parsers.numerals import is_count
from gnnloom.pipeline.sources.reading.files import SourceFile, open_files
from gnnloom.pipeline.sources.reading.lines import (
    BLOCK_BYTES,
    LONGEST_LINE,
    RANGE_BYTES,
    bad_line,
    check_ends_with_feed,
    count_data_lines,
    counts_by_file,
    first_line,
    lines_below,
    ranges_below,
)
from gnnloom.pipeline.sources.reading.parse import parse_from_one
from gnnloom.pipeline.sources.source import EdgeChunk, SourceRange
from gnnloom.pipeline.sources.understood import UNREAD, Understood
from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import counted

_FIELDS = ("pattern", "real", "integer", "unsigned-integer")
#: Other direction of an entry, by the symmetry of its matrix.
_OTHER_DIRECTION = {
    "general": "",
    "symmetric": ", and i to j",
    "skew-symmetric": ", and i to j with the opposite value",
}


@dataclass(frozen=True)
class MatrixHeader:
    """The header of a file.

    Attributes:
        field: ``pattern``, ``real``, ``integer``, or ``unsigned-integer`` as SciPy writes it.
        symmetry: ``general``, ``symmetric`` or ``skew-symmetric``.
        num_rows, num_columns: shape of the matrix.
        data_at: offset of the first entry's line in the decompressed contents.
    """

    file: SourceFile
    field: str
    symmetry: str
    num_rows: int
    num_columns: int
    num_entries: int
    data_at: int

    @property
    def num_vertices(self) -> int:
        """Number of vertices, if rows and columns are numbered alike; all ids are below it."""
        return max(self.num_rows, self.num_columns)


@dataclass(frozen=True)
class MatrixMarketEdges:
    """Edges from MatrixMarket files; implements :class:`~gnnloom.pipeline.sources.source.EdgeSource`.

    Attributes:
        weights: whether edges have weights.
        once: symmetric files give each edge once, for a graph that stores both directions of all edges.
        is_counted: whether the entries of files with several ranges are known to match the numbers in the headers.
        range_bytes: size of a range.
        block_bytes: number of bytes parsed at a time.
    """

    matrices: tuple[MatrixHeader, ...]
    weights: bool = False
    once: bool = False
    is_counted: bool = False
    range_bytes: int = RANGE_BYTES
    block_bytes: int = BLOCK_BYTES

    @classmethod
    def open(cls, locations: Sequence[str], *, weights: bool = False, undirected: bool = False) -> MatrixMarketEdges:
        """Find the files and read their headers.

        Args:
            undirected: the graph will store both directions of every edge.

        Raises:
            NotFoundError: a file does not exist.
            InputError: a header is invalid, or the matrix is dense, complex, empty, or lacks the weights.
        """
        matrices = tuple(read_header(file) for file in open_files(locations))
        for matrix in matrices:
            if weights and matrix.field == "pattern":
                raise InputError(f"{matrix.file.location}: a pattern has no weights; leave out `--weights`")
        return cls(matrices, weights, undirected)

    def identity(self) -> dict[str, Any]:
        files = [matrix.file.identity() for matrix in self.matrices]
        return {"format": "mtx", "weights": self.weights, "once": self.once, "files": files}

    @property
    def num_edges(self) -> int:
        """Number of edges that :meth:`read` gives; loops of symmetric files count twice."""
        return sum(matrix.num_entries * (2 if self._mirrors(matrix) else 1) for matrix in self.matrices)

    def _mirrors(self, matrix: MatrixHeader) -> bool:
        return matrix.symmetry != "general" and not (self.once and matrix.symmetry == "symmetric")

    def num_vertices(self) -> int | None:
        return max(matrix.num_vertices for matrix in self.matrices)

    @property
    def two_types(self) -> str:
        """The first matrix that is not square, whose columns are the sources; empty if all are square."""
        found = next((each for each in self.matrices if each.num_rows != each.num_columns), None)
        if found is None:
            return ""
        shape = f"{found.num_rows:,} x {found.num_columns:,}"
        return f"{found.file.location}: a matrix of {shape}, whose columns are the sources, and rows the targets"

    @property
    def type_sizes(self) -> tuple[int, int]:
        """Numbers of columns and of rows."""
        return max(each.num_columns for each in self.matrices), max(each.num_rows for each in self.matrices)

    def ranges(self) -> Sequence[SourceRange]:
        return ranges_below(self.matrices, self.range_bytes)

    def understood(self) -> list[Understood]:
        """Describes how each file is read, judging by its header."""
        return [
            Understood(
                matrix.file.location,
                "mtx",
                {
                    "vertices": matrix.num_vertices,
                    "entries": matrix.num_entries,
                    "values": matrix.field,
                    "symmetry": matrix.symmetry,
                },
                (
                    f"MatrixMarket, {matrix.symmetry}, {counted(matrix.num_entries, 'entry')}, values: {matrix.field}",
                    f"entry (i, j) is the edge j to i{_OTHER_DIRECTION[matrix.symmetry]}",
                    UNREAD if matrix.field != "pattern" and not self.weights else "",
                ),
                flags=(
                    *(("--weights",) if matrix.field != "pattern" and not self.weights else ()),
                    *(("--undirected",) if matrix.symmetry == "symmetric" and not self.once else ()),
                ),
            )
            for matrix in self.matrices
        ]

    def surveys(self) -> Sequence[SourceRange]:
        return [] if self.is_counted else [span for span in self.ranges() if span.stop >= 0]

    def survey(self, span: SourceRange) -> list[int]:
        return [count_data_lines(lines_below(self.matrices[span.file], span, self.block_bytes))]

    def with_surveys(self, found: Sequence[Sequence[int]]) -> MatrixMarketEdges:
        for number, entries in counts_by_file(self.surveys(), found).items():
            _check_entries(self.matrices[number], entries)
        return replace(self, is_counted=True)

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        matrix, found = self.matrices[span.file], 0
        check_ends_with_feed(matrix.file)
        read = {"weights": self.weights, "ignores_weights": matrix.field != "pattern" and not self.weights}
        for offset, block in lines_below(matrix, span, self.block_bytes):
            row, column, weight = parse_from_one(matrix.file, offset, block, matrix.num_vertices, **read)
            found += len(row)
            _check_entry(matrix, row, column)
            # Entry A[i, j] is the edge j -> i: the column is the source.
            yield EdgeChunk(column, row, weight)
            if self._mirrors(matrix):
                yield _mirrored(matrix, row, column, weight)
        if span.stop < 0:
            _check_entries(matrix, found)


def _check_entry(matrix: MatrixHeader, row: NDArray[np.int64], column: NDArray[np.int64]) -> None:
    """Refuse entries of a matrix that is not square beyond its rows or columns; ids of all are checked already."""
    if matrix.num_rows != matrix.num_columns:
        outside = (row >= matrix.num_rows) | (column >= matrix.num_columns)
        if outside.any():
            at = int(np.argmax(outside))
            raise InputError(
                f"{matrix.file.location}: entry ({row[at] + 1:,}, {column[at] + 1:,}) is outside of the"
                f" {matrix.num_rows:,} x {matrix.num_columns:,} matrix"
            )


def _check_entries(matrix: MatrixHeader, found: int) -> None:
    if found != matrix.num_entries:
        raise InputError(
            f"{matrix.file.location}: {counted(found, 'entry')}, the header states {matrix.num_entries:,}; the file is"
            " truncated or damaged"
        )


def _mirrored(
    matrix: MatrixHeader, row: NDArray[np.int64], column: NDArray[np.int64], weight: NDArray[np.float32] | None
) -> EdgeChunk:
    """The other direction of all entries off the diagonal."""
    off = row != column
    sign = np.float32(-1 if matrix.symmetry == "skew-symmetric" else 1)
    return EdgeChunk(row[off], column[off], None if weight is None else weight[off] * sign)


def read_header(file: SourceFile) -> MatrixHeader:
    """Read the banner and the size line.

    Raises:
        InputError: they are invalid, or describe anything but a sparse matrix of real numbers.
    """
    with file.open() as stream:
        banner = stream.readline(LONGEST_LINE)
        words = banner.decode("latin-1").lower().split()
        if len(words) != 5 or words[0].lstrip("%") != "matrixmarket" or words[1] != "matrix":
            raise bad_line(
                file,
                0,
                "expected '%%MatrixMarket matrix coordinate FIELD SYMMETRY'; give `--format snap` if each line is an"
                " edge",
            )
        layout, field, symmetry = words[2:]
        for what, known in ((layout, ("coordinate",)), (field, _FIELDS), (symmetry, tuple(_OTHER_DIRECTION))):
            if what not in known:
                raise InputError(
                    f"{file.location}: the matrix is {what!r}; expected {' or '.join(known)}; in Python,"
                    " scipy.io.mmread reads it, and scipy.io.mmwrite(file, scipy.sparse.coo_matrix(abs(matrix))) writes"
                    " the nonzeros"
                )
        at, line = first_line(stream, len(banner))
    sizes = line.decode("latin-1").split()
    if len(sizes) != 3 or not all(map(is_count, sizes)):
        raise bad_line(file, at, "expected the numbers of rows, columns and entries")
    rows, columns, entries = (int(size) for size in sizes)
    if rows != columns and symmetry != "general":
        raise InputError(f"{file.location}: a {symmetry} matrix must be square, found {rows:,} x {columns:,}")
    if not entries:
        raise InputError(f"{file.location}: the file has no edges")
    return MatrixHeader(file, field, symmetry, rows, columns, entries, at + len(line))


FORMAT = Format(
    name="mtx",
    order=50,
    help='MatrixMarket coordinate files; entry "i j" is the edge j -> i',
    open_edges=MatrixMarketEdges.open,
    options=(WEIGHTS,),
    begins=(b"%%matrixmarket", b"%matrixmarket"),
    suffixes=("mtx",),
    doubles=True,
)
