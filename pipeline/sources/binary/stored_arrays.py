"""NumPy arrays in files, read as flat ranges: memory-mapped or streamed.

An ``.npy`` is mapped if it is local and not compressed. Members of a small ``.npz`` are streamed, which compares their
checksums. Members of a large one are mapped where they lie if they are stored without compression (``np.savez``), and
unpacked once if they are deflated (``np.savez_compressed``); :mod:`~gnnloom.pipeline.ingest.preparation` checks the
former and unpacks the latter before tasks share them.

Nothing is unpickled, and ranges of elements are read in blocks, so no array is held in memory as a whole.
"""

from __future__ import annotations

import io
import math
import shutil
import tokenize
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Self, cast, runtime_checkable

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from gnnloom.pipeline.sources.binary.archive import data_offset, listed, opened_zip
from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.storage.disk.files import written_aside
from gnnloom.storage.errors import InputError, NotFoundError

#: Number of bytes read at a time.
BLOCK_BYTES = 8 << 20
#: Bytes of arrays from which on an archive is large: not left to a single task.
LARGE_BYTES = 1 << 30
#: Maximum number of elements of an array that is read as a whole.
MOST_WHOLE = 64
#: Maximum size in bytes of the header of an array.
_MOST_HEADER_BYTES = 1 << 16
#: Maximum size of one element in bytes: a text, as an id. Blocks hold at least one element.
_MOST_ELEMENT_BYTES = 1 << 20
#: Errors of NumPy for a damaged header, which it evaluates as a Python literal of at most 10,000 characters.
_HEADER_ERRORS = (
    ValueError, EOFError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, MemoryError,
    SyntaxError, tokenize.TokenError,
)  # fmt: skip
#: How errors describe a damaged archive.
FAULT = "truncated or damaged .npz file"
#: Flag of a member that is encrypted.
_ENCRYPTED = 1


@dataclass(frozen=True)
class StoredMember:
    """A member's bytes in an archive that stores them as they are.

    Attributes:
        start: offset of the first byte in the archive.
        size: number of bytes.
        checksum: CRC-32 of the bytes.
    """

    start: int
    size: int
    checksum: int


@dataclass(frozen=True)
class StoredArray:
    """An array in a file, as its header describes it.

    Attributes:
        member: name within an ``.npz``; None for an ``.npy``.
        fortran_order: whether the first axis varies fastest.
        data_offset: offset of the data, in bytes, from the start of the ``.npy``.
        is_large: whether it is a member of a large archive.
        stored: where its bytes lie in a large archive; None if they are compressed, or on a server.
        unpacked: file into which the member was unpacked; None if it was not.
    """

    file: SourceFile
    member: str | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool
    data_offset: int
    is_large: bool = field(default=False, kw_only=True)
    stored: StoredMember | None = field(default=None, kw_only=True)
    unpacked: Path | None = field(default=None, kw_only=True)

    def __str__(self) -> str:
        return self.file.location if self.member is None else f"{self.file.location}, array {self.member}"

    @property
    def label(self) -> str:
        """Name within the file; empty for the only array of a file."""
        return self.member or ""

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def data_end(self) -> int:
        """Offset of the first byte after the data."""
        return self.data_offset + self.size * self.dtype.itemsize

    @property
    def is_mapped(self) -> bool:
        """Whether any range can be read without reading what precedes it."""
        if self.unpacked is not None:
            return True
        return self.file.is_seekable and (self.member is None or self.stored is not None)

    @property
    def is_packed(self) -> bool:
        """Whether it is a member of a large archive that can only be read from its start."""
        return self.is_large and not self.is_mapped

    @cached_property
    def block_elements(self) -> int:
        return max(1, BLOCK_BYTES // self.dtype.itemsize)

    def read_flat(self, start: int, stop: int, block: int | None = None) -> Iterator[NDArray[Any]]:
        """Read elements ``start`` to ``stop`` in the order in which they are stored.

        Args:
            block: number of elements per block; by default ``BLOCK_BYTES`` worth of elements.

        Yields:
            Consecutive blocks, (block,) of the stored dtype; the last may be shorter.

        Raises:
            InputError: the file ends early, or its compressed data is damaged.
        """
        step = block or self.block_elements
        if start >= stop:
            return
        if self.is_mapped:
            flat = self._mapped()
            for first in range(start, stop, step):
                yield flat[first : min(first + step, stop)]
            return
        with open_member(self.file, self.member) as (stream, _):
            _skip(stream, self.data_offset + start * self.dtype.itemsize)
            for first in range(start, stop, step):
                yield self._read_block(stream, min(step, stop - first))

    def read_all(self) -> NDArray[Any]:
        """Read the whole array in its stored shape and dtype.

        Raises:
            InputError: it has more than ``MOST_WHOLE`` elements, the file ends early, or its data is damaged.
        """
        if self.size > MOST_WHOLE:
            raise InputError(f"{self}: expected a few values, found {self.size:,}")
        blocks = [np.array(block) for block in self.read_flat(0, self.size)]
        flat = np.concatenate(blocks) if blocks else np.empty(0, self.dtype)
        return flat.reshape(self.shape, order="F" if self.fortran_order else "C")

    def _mapped(self) -> NDArray[Any]:
        # The file may have become shorter since its header was read.
        path, begin = (self.unpacked, 0) if self.unpacked else (self.file.path, self.stored.start if self.stored else 0)
        self._check_length(path.stat().st_size - begin)
        return np.memmap(path, self.dtype, "r", begin + self.data_offset, (self.size,))

    def _read_block(self, stream: BinaryIO, count: int) -> NDArray[Any]:
        wanted = count * self.dtype.itemsize
        # Streams of archives and servers may return fewer bytes than asked for.
        data = stream.read(wanted)
        while len(data) < wanted:
            more = stream.read(wanted - len(data))
            if not more:
                raise self._too_short()
            data += more
        return np.frombuffer(data, self.dtype)

    @property
    def unpack_memory(self) -> int:
        """Bytes that unpacking holds."""
        return BLOCK_BYTES

    def write_unpacked(self, file: BinaryIO) -> None:
        """Write the ``.npy`` that is a member of an archive, from its start.

        Raises:
            InputError: the compressed data is damaged.
        """
        with open_member(self.file, self.member) as (stream, _):
            shutil.copyfileobj(stream, file, BLOCK_BYTES)

    def check_fits(self, num_bytes: int | None) -> None:
        """Check that the data can lie within this many bytes.

        Raises:
            InputError: the header states more elements.
        """
        if num_bytes is not None:
            self._check_length(num_bytes)

    def _check_length(self, num_bytes: int) -> None:
        if self.data_end > num_bytes:
            raise self._too_short()

    def _too_short(self) -> InputError:
        return InputError(f"{self}: the file ends before the {self.size:,} elements that its header states")


#: File of each unpacked array, by the array's location and member.
Unpacked = Mapping[tuple[str, str], Path]


@runtime_checkable
class PackedSource(Protocol):
    """A source whose arrays may be compressed."""

    def stored_arrays(self) -> tuple[StoredArray, ...]:
        """The arrays that are read; one may occur more than once."""
        ...

    def with_unpacked(self, unpacked: Unpacked) -> Self:
        """The same source with the same identity, which reads some arrays from files into which they were unpacked."""
        ...


def unpacked_array(array: StoredArray, unpacked: Unpacked) -> StoredArray:
    """The array as it is read from the file into which it was unpacked; the array itself if it was not."""
    path = unpacked.get((array.file.location, array.member or ""))
    return array if path is None else replace(array, unpacked=path)


def unpack_array(array: StoredArray, path: Path) -> int:
    """Write a member's ``.npy`` to a file, in one pass from its start; returns the bytes written.

    Raises:
        InputError: the compressed data is damaged, or ends early.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside:
        with aside.open("wb") as file:
            array.write_unpacked(file)
            size = file.tell()
        if size < array.data_end:
            raise InputError(f"{array}: {FAULT} ({size:,} bytes, expected {array.data_end:,})")
    return size


def open_array(file: SourceFile, member: str | None = None) -> StoredArray:
    """Read the header of an ``.npy``, or of a member of an ``.npz``.

    Raises:
        NotFoundError: there is no such member.
        InputError: the file is not a NumPy file, is shorter than its header states, or the array contains Python
            objects.
    """
    where = file.location if member is None else f"{file.location}, array {member}"
    with open_member(file, member) as (stream, num_bytes):
        try:
            shape, fortran_order, dtype, offset = _read_header(stream)
        except _HEADER_ERRORS as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise InputError(f"{where}: not a NumPy array ({reason})") from error
    if dtype.hasobject:
        raise InputError(
            f"{where}: an array of Python objects, which would have to be unpickled; save names with"
            " numpy.save(file, array.astype(str)), or numbers with numpy.save(file, array.astype(numpy.int64))"
        )
    if not dtype.itemsize or min(shape, default=0) < 0:
        raise InputError(f"{where}: not a NumPy array of data (shape {shape}, dtype {dtype})")
    if dtype.itemsize > _MOST_ELEMENT_BYTES:
        raise InputError(f"{where}: elements of {dtype.itemsize:,} bytes; at most {_MOST_ELEMENT_BYTES:,} are read")
    array = StoredArray(file, member, shape, dtype, fortran_order, offset)
    # Before anything is planned for the size that the header states.
    array.check_fits(num_bytes)
    return array if member is None else _in_archive(array, member)


def member_names(file: SourceFile) -> list[str]:
    """Names of the arrays in an ``.npz``.

    Raises:
        InputError: the file is not a zip archive.
    """
    with _open_archive(file) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


@contextmanager
def open_member(file: SourceFile, member: str | None) -> Iterator[tuple[BinaryIO, int | None]]:
    """Open a stream of an ``.npy`` file, or of a member of an ``.npz``, positioned at the header.

    Yields:
        The stream, and the most bytes that it can have; None if that is unknown.
    """
    if member is None:
        with file.open() as stream:
            yield stream, file.most_bytes
        return
    with _open_archive(file) as archive:
        try:
            stream = cast("BinaryIO", archive.open(f"{member}.npy"))
        except KeyError:
            names = listed([name.removesuffix(".npy") for name in archive.namelist()])
            raise NotFoundError(f"{file.location}: the file has no array {member}, only {names or 'none'}") from None
        with stream:
            # zipfile reads no further than the size in the archive's directory.
            yield stream, archive.getinfo(f"{member}.npy").file_size


@contextmanager
def _open_archive(file: SourceFile) -> Iterator[zipfile.ZipFile]:
    with opened_zip(file, FAULT) as (archive, _):
        yield archive


def _in_archive(array: StoredArray, member: str) -> StoredArray:
    """The array with what its archive says about it."""
    with opened_zip(array.file, FAULT) as (archive, stored):
        if sum(info.file_size for info in archive.infolist()) < LARGE_BYTES:
            return array
        info = archive.getinfo(f"{member}.npy")
        is_plain = info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & _ENCRYPTED
        if not (is_plain and array.file.is_seekable):
            return replace(array, is_large=True)
        return replace(array, is_large=True, stored=StoredMember(data_offset(info, stored), info.file_size, info.CRC))


def _read_header(stream: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, Fortran order, dtype, and the offset of the data."""
    version = npy_format.read_magic(stream)
    if version == (1, 0):
        shape, fortran_order, dtype = npy_format.read_array_header_1_0(stream)
    else:
        prefix = stream.read(4)
        length = int.from_bytes(prefix, "little")
        # NumPy would read a header of up to 4 GiB before it refuses all of more than 10,000 characters.
        if length > _MOST_HEADER_BYTES:
            raise ValueError(f"a header of {length:,} bytes; at most {_MOST_HEADER_BYTES:,} are read")
        header = io.BytesIO(prefix + stream.read(length))
        shape, fortran_order, dtype = npy_format.read_array_header_2_0(header)
    return tuple(int(size) for size in shape), bool(fortran_order), dtype, stream.tell()


def _skip(stream: BinaryIO, count: int) -> None:
    """Skip bytes by reading them: no stream here seeks faster than it reads, and some cannot seek."""
    while count > 0:
        skipped = len(stream.read(min(BLOCK_BYTES, count)))
        count = count - skipped if skipped else 0
