"""Zarr arrays as gnnloom writes and reads them: whole chunks, checksums, digests, no silent zeros.

An array is written once, either whole or in *pieces*. A piece is a range of rows (of the first axis) made of whole
chunks, so that no chunk ever has two writers. The digest of a piece covers the plain little-endian bytes, so it does
not depend on the codec. The checksum at the end of each chunk's file is recorded as well: a reader compares the two,
and so refuses a chunk that is whole but not the one that was written here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from gnnloom.storage.disk.value_rules import ValueCheck, Within
from gnnloom.storage.errors import CorruptError, InputError
from gnnloom.storage.format.array_metadata import DEFAULT_CODEC, METADATA, MOST_CHUNK_BYTES, ArrayMetadata
from gnnloom.storage.format.array_record import ArrayRecord, Piece
from gnnloom.storage.format.chunks import ChunkReader, ChunkWriter, FileBuffer
from gnnloom.storage.system_errors import check_is_of_content
from gnnloom.storage.wording import counted

__all__ = [
    "CHUNK_BYTES",
    "Array",
    "ArrayReader",
    "ArrayRecord",
    "Piece",
    "ReadCounter",
    "create_array",
    "default_chunk_rows",
    "digest_bytes",
    "stored_files",
    "write_array",
    "write_rows",
]

Array = NDArray[Any]

#: Uncompressed bytes of a chunk: small enough that cropping wastes little, large enough for file systems.
CHUNK_BYTES = 4 << 20


@dataclass
class ReadCounter:
    """Counts the bytes of stored (compressed) chunks, and the files, that one rank or task reads."""

    bytes: int = 0
    files: int = field(default=0)


def digest_bytes(data: Array) -> str:
    """128-bit xxh3 hash of the array's little-endian bytes in C order, as 32 hexadecimal digits."""
    return xxhash.xxh3_128_hexdigest(bytes_of(data))


def bytes_of(data: Array) -> memoryview:
    """The little-endian bytes of an array in C order."""
    # Little-endian on every machine, so that digests do not depend on the machine that computes them.
    contiguous = np.ascontiguousarray(data, dtype=data.dtype.newbyteorder("<"))
    return contiguous.reshape(-1).view(np.uint8).data


def default_chunk_rows(shape: Sequence[int], dtype: np.dtype[Any]) -> int:
    """Rows per chunk for chunks of about ``CHUNK_BYTES``."""
    # An empty array gets chunks of one row: readers and writers divide by the number of rows per chunk.
    row_bytes = dtype.itemsize * math.prod(shape[1:])
    return max(1, min(CHUNK_BYTES // max(1, row_bytes), max(1, shape[0])))


def create_array(
    root: Path,
    path: str,
    shape: Sequence[int],
    dtype: np.dtype[Any] | type[Any] | str,
    dims: Sequence[str],
    chunk_rows: int | None = None,
    codec: str = DEFAULT_CODEC,
) -> ArrayRecord:
    """Create an empty array, to be filled with :func:`write_rows`.

    Args:
        root: folder of the artifact.
        path: path of the array below ``root``, with ``/`` between its components.
        shape: sizes of the dimensions; only the first is split into chunks.
        dims: names of the dimensions.
        chunk_rows: rows per chunk; by default chunks have about ``CHUNK_BYTES``.
        codec: one of :data:`gnnloom.storage.format.array_metadata.CODECS`.

    Returns:
        The record of the array, with no pieces yet.
    """
    return record_of(path, _create(root / path, shape, dtype, dims, chunk_rows, codec))


def _create(
    where: Path,
    shape: Sequence[int],
    dtype: np.dtype[Any] | type[Any] | str,
    dims: Sequence[str],
    chunk_rows: int | None,
    codec: str,
) -> ArrayMetadata:
    metadata = new_metadata(shape, dtype, dims, chunk_rows, codec)
    metadata.create(where)
    return metadata


def new_metadata(
    shape: Sequence[int],
    dtype: np.dtype[Any] | type[Any] | str,
    dims: Sequence[str],
    chunk_rows: int | None = None,
    codec: str = DEFAULT_CODEC,
) -> ArrayMetadata:
    """The metadata of an array that :func:`create_array` would make; see there for the arguments.

    Raises:
        InputError: a chunk has more bytes than readers accept.
    """
    kind = np.dtype(dtype).newbyteorder("<")
    rows = chunk_rows or default_chunk_rows(shape, kind)
    chunks = (rows, *(max(1, size) for size in shape[1:]))
    if kind.itemsize * math.prod(chunks) > MOST_CHUNK_BYTES:
        raise InputError(
            f"rows of shape {tuple(shape[1:])}, in chunks of more than {MOST_CHUNK_BYTES:,} bytes, which are not read;"
            " store fewer columns, or fewer rows in a chunk"
        )
    return ArrayMetadata(tuple(int(size) for size in shape), chunks, kind, codec, tuple(dims))


def record_of(path: str, metadata: ArrayMetadata, *pieces: Piece) -> ArrayRecord:
    """The record of an array with some pieces."""
    return ArrayRecord(path, metadata.shape, metadata.dtype.name, metadata.dims, pieces)


def write_rows(root: Path, path: str, start: int, data: Array) -> ArrayRecord:
    """Write rows ``start`` to ``start + len(data)`` of an array made by :func:`create_array`.

    Args:
        root: folder of the artifact.
        path: path of the array below ``root``.
        data: (num_rows, ...), with the dtype of the array and its sizes along the other dimensions.

    Returns:
        The record of the array, with these rows as its only piece.

    Raises:
        InputError: the rows are not whole chunks of the array, or have another shape or dtype.
    """
    # Only the metadata is read here, so tasks that write different rows of one array do not conflict.
    return _write(root, path, ArrayMetadata.read(root / path), start, data)


def _write(root: Path, path: str, array: ArrayMetadata, start: int, data: Array) -> ArrayRecord:
    stop = start + len(data)
    chunk = array.chunks[0]
    # Two writers of one chunk would each keep only its own rows; whole chunks rule that out. Only the last is partial.
    whole = start % chunk == 0 and (stop % chunk == 0 or stop == array.shape[0])
    if not whole or stop > array.shape[0] or data.shape[1:] != array.shape[1:] or data.dtype != array.dtype:
        raise InputError(
            f"{root / path}: rows {start}:{stop} of shape {data.shape} and dtype {data.dtype} are not whole chunks of"
            f" {counted(chunk, 'row')} of an array of shape {array.shape} and dtype {array.dtype}"
        )
    checksums = ChunkWriter(root / path, array).write(start, data)
    return record_of(path, array, Piece(start, stop, digest_bytes(data), checksums))


def stored_files(root: Path, record: ArrayRecord) -> Iterator[Path]:
    """The files of an array and its pieces, and the folders that hold their names."""
    array = ArrayMetadata.read(root / record.path)
    chunks = root / record.path / "c"
    below = ("0",) * (len(array.shape) - 1)
    for piece in record.pieces if 0 not in array.shape else ():
        for number in range(piece.start // array.chunks[0], -(-piece.stop // array.chunks[0])):
            chunk = chunks.joinpath(str(number), *below)
            # The folders of a chunk of several dimensions are its own.
            # The first chunk makes the folder of all; another process may still be about to write it.
            yield from (chunk, *chunk.parents[: len(below)], chunks)
    yield from (root / record.path / METADATA, root / record.path)


def write_array(
    root: Path,
    path: str,
    data: Array,
    dims: Sequence[str],
    chunk_rows: int | None = None,
    codec: str = DEFAULT_CODEC,
) -> ArrayRecord:
    """Write a whole array at once; see :func:`create_array` for the arguments.

    Returns:
        The record of the array, with all rows as one piece.
    """
    return _write(root, path, _create(root / path, data.shape, data.dtype, dims, chunk_rows, codec), 0, data)


class ArrayReader:
    """Reads ranges of rows of one stored array, and refuses chunks that are missing, damaged or from elsewhere.

    Zarr returns fill values for a missing chunk; here this is an error that names the file.
    """

    def __init__(
        self,
        root: Path,
        record: ArrayRecord,
        counter: ReadCounter | None = None,
        bounds: tuple[int, int] | None = None,
    ) -> None:
        """Open an array and check it against its record.

        Args:
            bounds: the smallest value that the array may hold, and one more than the largest; each chunk is checked
                when it is read, because kernels use ids without checking them again. None allows all values.

        Raises:
            CorruptError: the array is missing, or has another shape or dtype than its record.
        """
        self.record = record
        self._where = root / record.path
        self._counter = counter if counter is not None else ReadCounter()
        #: Requirement for the values; None allows all.
        self.rule = None if bounds is None else Within(*bounds)
        try:
            self._chunks = ChunkReader(self._where)
        except (OSError, ValueError, KeyError, TypeError) as error:
            check_is_of_content(error, self._where)
            raise CorruptError(f"{self._where}: the array cannot be opened ({error})") from error
        # zarr.json is not covered by a checksum; comparing it with the record finds damage to it.
        found = (self._chunks.shape, self._chunks.dtype.name)
        if found != (record.shape, record.dtype):
            raise CorruptError(
                f"{self._where}: expected {record.dtype} of shape {record.shape}, found {found[1]} of shape {found[0]}"
            )
        rows, *others = self._chunks.chunks
        if rows < 1 or others != [max(1, size) for size in record.shape[1:]]:
            raise CorruptError(
                f"{self._where}: expected chunks of whole rows of shape {record.shape[1:]}, found {self._chunks.chunks}"
            )

    @property
    def where(self) -> str:
        """The array's folder, for messages."""
        return str(self._where)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.record.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.record.dtype)

    @property
    def chunk_rows(self) -> int:
        """Rows per chunk; ranges aligned to it are the cheapest to read."""
        return self._chunks.chunks[0]

    def __len__(self) -> int:
        return self.record.shape[0]

    def read(self, start: int = 0, stop: int | None = None, out: Array | None = None) -> Array:
        """Rows ``start`` to ``stop`` as a NumPy array.

        Args:
            out: the array to fill, contiguous, with the shape of the rows and the array's dtype; a new one by default.

        Raises:
            CorruptError: a chunk is missing, damaged or not the one that was written, or holds values that the array
                may not; the message names the file.
            IndexError: the range does not lie within the array.
        """
        stop = len(self) if stop is None else stop
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"{self._where}: rows {start}:{stop} are not in the array of {counted(len(self), 'row')}")
        self._check_last(start, stop)
        rows = np.empty((stop - start, *self.shape[1:]), dtype=self.dtype) if out is None else out
        if rows.size == 0:
            return rows
        # One chunk at a time: memory is the result and one decoded chunk, whatever the range.
        files = FileBuffer()
        for number in range(start // self.chunk_rows, -(-stop // self.chunk_rows)):
            first = number * self.chunk_rows
            begin, end = max(start, first), min(stop, first + self.chunk_rows)
            target = rows[begin - start : end - start]
            if len(target) == self.chunk_rows:
                self._count(self.read_chunk(number, target, files))
            else:
                target[...] = self._chunk(number)[begin - first : end - first]
        return rows

    def _check_last(self, start: int, stop: int) -> None:
        """Check that the last of several chunks exists, before memory is allocated for all chunks."""
        last = (stop - 1) // self.chunk_rows
        # A damaged or hostile shape can ask for any amount.
        if last > start // self.chunk_rows and 0 not in self.shape and not self._chunks.file(last).exists():
            raise CorruptError(f"{self._chunks.file(last)}: the chunk is missing")

    def ranges(self, limit: int, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, int]]:
        """Cut rows ``start`` to ``stop`` into ranges of about ``limit`` rows, each at least one chunk.

        Ranges end where chunks do, since a chunk shared by two ranges would be decoded twice.
        """
        stop = len(self) if stop is None else stop
        step = max(self.chunk_rows, limit // self.chunk_rows * self.chunk_rows)
        while start < stop:
            end = min(stop, (start // self.chunk_rows) * self.chunk_rows + step)
            yield start, end
            start = end

    def chunks(self) -> Iterator[Array]:
        """All rows in order, one chunk in memory at a time."""
        for start in range(0, len(self), self.chunk_rows):
            yield self.read(start, min(start + self.chunk_rows, len(self)))

    def read_chunk(self, number: int, out: Array, files: FileBuffer) -> int:
        """Read a whole chunk, including the padding of the last one, into an existing buffer; counts nothing.

        Args:
            out: (chunk_rows, ...), contiguous, of the array's dtype.
            files: takes the chunk's file.

        Returns:
            The stored bytes that were read.

        Raises:
            CorruptError: as for :meth:`read`.
        """
        with self._errors(number):
            num_bytes = self._chunks.read_into(number, out, files, self.record.checksum(number, self.chunk_rows))
        self._check_values(number, out)
        return num_bytes

    def _chunk(self, number: int) -> Array:
        with self._errors(number):
            chunk, num_bytes = self._chunks.read(number, self.record.checksum(number, self.chunk_rows))
        self._check_values(number, chunk)
        self._count(num_bytes)
        return chunk

    def _check_values(self, number: int, chunk: Array) -> None:
        if self.rule is not None:
            # Without the zeros that fill up the last chunk: they need not lie within the bounds.
            own = chunk[: len(self) - number * self.chunk_rows]
            remedy = "remove the artifact or run that has the array, and make it again"
            ValueCheck(str(self._chunks.file(number)), self.rule, remedy).add(own)

    def _count(self, num_bytes: int) -> None:
        self._counter.bytes += num_bytes
        self._counter.files += 1

    @contextmanager
    def _errors(self, number: int) -> Iterator[None]:
        """Raise CorruptError, with the file of the chunk, for what goes wrong while it is read."""
        try:
            yield
        except FileNotFoundError as error:
            raise CorruptError(f"{self._chunks.file(number)}: the chunk is missing") from error
        except (OSError, ValueError, RuntimeError) as error:
            check_is_of_content(error, self._chunks.file(number))
            raise CorruptError(f"{self._chunks.file(number)}: damaged chunk ({error})") from error

    def verify(self) -> None:
        """Read every piece and compare it with its digest.

        Raises:
            CorruptError: a piece differs, or the pieces do not cover the array.
        """
        self.check_covered()
        self.verify_pieces()

    def check_covered(self) -> None:
        """Check that every row belongs to a piece; reads nothing.

        Raises:
            CorruptError: the pieces do not cover the array.
        """
        # The pieces must tile the array without a gap or overlap, or some rows would have no digest.
        covered = 0
        for piece in sorted(self.record.pieces, key=lambda piece: piece.start):
            if piece.start != covered:
                break
            covered = piece.stop
        if covered != len(self):
            raise CorruptError(f"{self._where}: rows {covered}:{len(self)} were never written")

    def verify_pieces(self, pieces: Sequence[Piece] | None = None) -> None:
        """Read pieces of this record, by default all, and compare each with its digest.

        Raises:
            CorruptError: a piece differs.
        """
        for piece in self.record.pieces if pieces is None else pieces:
            self._verify_piece(piece)

    def _verify_piece(self, piece: Piece) -> None:
        state = xxhash.xxh3_128()
        # Pieces begin at a chunk boundary, so every chunk is read once. Hashing in steps gives the digest of the whole.
        for start in range(piece.start, piece.stop, self.chunk_rows):
            state.update(bytes_of(self.read(start, min(start + self.chunk_rows, piece.stop))))
        self._compare(piece, state.hexdigest())

    def _compare(self, piece: Piece, digest: str) -> None:
        if digest != piece.digest:
            raise CorruptError(
                f"{self._where}: rows {piece.start}:{piece.stop} have digest {digest}, the manifest says {piece.digest}"
            )
