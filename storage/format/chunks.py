"""The chunks of a Zarr array, read and written in the caller's thread, with the bytes that Zarr writes.

Zarr passes every chunk to an event loop and a pool of threads, and copies it twice. That costs as much as the
compression, and ten times as much for a small chunk. gnnloom needs neither: a chunk has one writer, and a process reads
few chunks at a time.
"""

from __future__ import annotations

import math
import os
import stat
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.faults import fault_point
from gnnloom.storage.format.array_metadata import MOST_CHUNK_BYTES, ArrayMetadata, blosc_settings, read_metadata
from gnnloom.storage.system_errors import naming

if TYPE_CHECKING:
    from numcodecs.blosc import Blosc

# Importing numcodecs takes 0.2 s, so only the functions that compress or decompress import it: listings and plans read
# nothing but metadata.

#: Names of Blosc's filters, at the numbers that numcodecs gives them.
_SHUFFLES: Final = ("noshuffle", "shuffle", "bitshuffle")
_CHECKSUM_BYTES: Final = 4
#: Bytes that Blosc adds to a chunk that it cannot compress, and the checksum, generously.
_OVERHEAD: Final = 1 << 10
#: Where Blosc's header has the size of the data before compression.
_BLOSC_SIZE: Final = slice(4, 8)


class ChunkWriter:
    """Writes the chunks of an array that is split along its first axis only."""

    def __init__(self, path: Path, metadata: ArrayMetadata) -> None:
        """Prepare to write below ``path``, the folder of the array."""
        self._folder = path / "c"
        # The shape of a chunk, not of the array: Zarr stores the last chunk at full size too.
        self._shape = metadata.chunks
        self._blosc = _compressor(metadata)
        self._dtype = metadata.dtype
        self._folder.mkdir(exist_ok=True)

    def write(self, start: int, rows: NDArray[Any]) -> str:
        """Write rows, beginning at row ``start``, which must begin a chunk; zeros fill up the last chunk.

        Args:
            rows: (num_rows, ...), with the array's sizes along the other dimensions.

        Returns:
            The checksums of the chunks, 8 hexadecimal digits for each.
        """
        if rows.size == 0:
            return ""
        checksums: list[str] = []
        length = self._shape[0]
        for first in range(0, len(rows), length):
            chunk = np.ascontiguousarray(rows[first : first + length], dtype=self._dtype)
            if chunk.shape != self._shape:
                # Zeros, not uninitialized memory: the same rows must give the same file, padding included.
                filled = np.zeros(self._shape, dtype=self._dtype)
                filled[: len(chunk)] = chunk
                chunk = filled
            checksums.append(self._put((start + first) // length, chunk))
        return "".join(checksums)

    def _put(self, number: int, chunk: NDArray[Any]) -> str:
        encoded = chunk.tobytes() if self._blosc is None else _encoded(self._blosc, chunk)
        checksum: bytes = google_crc32c.value(encoded).to_bytes(_CHECKSUM_BYTES, "little")
        # Arrays are split along the first axis only, so the chunk's other coordinates are always 0.
        file = self._folder.joinpath(str(number), *["0"] * (chunk.ndim - 1))
        if chunk.ndim > 1:
            file.parent.mkdir(parents=True, exist_ok=True)
        try:
            _replace_file(file, (encoded, checksum))
        except FileNotFoundError:
            # Another attempt of the same task has just begun, and took the temporary file for one of a killed attempt.
            _replace_file(file, (encoded, checksum))
        return checksum.hex()


class FileBuffer:
    """Memory for files that are read one after the other: fresh memory for each takes longer than reading it."""

    def __init__(self) -> None:
        self._memory = bytearray()

    def read(self, path: Path) -> memoryview:
        """The content of a file, until the next one is read."""
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size > len(self._memory):
                self._memory = bytearray(size)
            content = memoryview(self._memory)[:size]
            done = 0
            while count := file.readinto(content[done:]):
                done += count
        return content[:done]


class ChunkReader:
    """Reads the chunks of an array that :class:`ChunkWriter` can write."""

    def __init__(self, path: Path) -> None:
        """Read the metadata in ``path``, the folder of the array.

        Raises:
            OSError, CorruptError, ValueError, KeyError, TypeError: the metadata is missing, damaged, or describes an
                array that gnnloom does not read.
        """
        content = read_metadata(path)
        names = [codec["name"] for codec in content["codecs"]]
        if content["node_type"] != "array" or names not in (["bytes", "crc32c"], ["bytes", "blosc", "crc32c"]):
            raise ValueError(f"an array with codecs {names}, which gnnloom does not read")
        self._folder = path / "c"
        self._compressed = "blosc" in names
        self.shape = tuple(int(size) for size in content["shape"])
        self.chunks = tuple(int(size) for size in content["chunk_grid"]["configuration"]["chunk_shape"])
        self.dtype = np.dtype(content["data_type"]).newbyteorder("<")
        self._plain_bytes = self.dtype.itemsize * math.prod(self.chunks)
        if self._plain_bytes > MOST_CHUNK_BYTES:
            raise ValueError(f"chunks of {self._plain_bytes:,} bytes; at most {MOST_CHUNK_BYTES:,} are read")

    def file(self, number: int) -> Path:
        """File of the chunk that begins at row ``number * chunks[0]``."""
        return self._folder.joinpath(str(number), *["0"] * (len(self.shape) - 1))

    def read(self, number: int, checksum: str = "") -> tuple[NDArray[Any], int]:
        """Read a whole chunk, including the padding of the last one.

        Args:
            checksum: what :meth:`ChunkWriter.write` gave for the chunk; empty if it is not known.

        Returns:
            The chunk, a read-only array of shape ``chunks``, and the size of its file in bytes.

        Raises:
            FileNotFoundError: the chunk is missing.
            ValueError, RuntimeError: the chunk is damaged, or not the one with this checksum.
        """
        encoded = self._sized(self._checked(memoryview(self._stored(number).read_bytes()), checksum))
        plain = _decoded(encoded) if self._compressed else encoded
        return np.frombuffer(plain, self.dtype).reshape(self.chunks), len(encoded) + _CHECKSUM_BYTES

    def read_into(self, number: int, out: NDArray[Any], files: FileBuffer, checksum: str = "") -> int:
        """Read a whole chunk, including the padding of the last one, into an existing buffer.

        Args:
            out: of shape ``chunks``, contiguous, of the array's dtype.
            files: takes the file.
            checksum: as for :meth:`read`.

        Returns:
            The size of the chunk's file in bytes.

        Raises:
            FileNotFoundError: the chunk is missing.
            ValueError, RuntimeError: the chunk is damaged, or not the one with this checksum.
        """
        encoded = self._sized(self._checked(files.read(self._stored(number)), checksum))
        if self._compressed:
            _decoded(encoded, out)
        else:
            out[...] = np.frombuffer(encoded, self.dtype).reshape(self.chunks)
        return len(encoded) + _CHECKSUM_BYTES

    def _stored(self, number: int) -> Path:
        """The file of a chunk, if it is not larger than a chunk that nothing compresses."""
        file = self.file(number)
        found = file.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > self._plain_bytes + _OVERHEAD:
            raise ValueError(f"not a file of at most {self._plain_bytes + _OVERHEAD:,} bytes")
        return file

    @staticmethod
    def _checked(stored: memoryview, wanted: str) -> memoryview:
        """The stored bytes before the checksum, if it is right."""
        encoded, checksum = stored[:-_CHECKSUM_BYTES], stored[-_CHECKSUM_BYTES:]
        # An array of bytes, because the checksum takes no other view without a copy.
        if google_crc32c.value(np.frombuffer(encoded, np.uint8)) != int.from_bytes(checksum, "little"):
            raise ValueError("the checksum is wrong")
        # A chunk of another artifact, or of an earlier moment, has a checksum that is right for its own bytes.
        found = checksum.hex()
        if wanted and found != wanted:
            raise ValueError(
                f"its checksum {found} is not {wanted}, which the manifest names: the file was damaged, or comes from"
                " another artifact; restore it, or remove its artifact or run and make it again"
            )
        return encoded

    def _sized(self, encoded: memoryview) -> memoryview:
        """The same bytes, if they decompress to exactly one chunk."""
        # A valid checksum shows that the bytes are those written, not that they fit the shape in zarr.json. The header
        # of Blosc states the size after decompression; checking it keeps a short file from filling the memory.
        size = int.from_bytes(encoded[_BLOSC_SIZE], "little") if self._compressed else len(encoded)
        if size != self._plain_bytes:
            raise ValueError(f"{size} bytes, expected {self._plain_bytes}")
        return encoded


def _replace_file(path: Path, pieces: Sequence[bytes]) -> None:
    """Write a file under a temporary name, and rename it when it is whole."""
    # A task that was believed dead may still write a chunk that is already recorded.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with naming(path):
            _write_file(temporary, pieces)
        fault_point("chunk.write", temporary)
        temporary.replace(path)
        fault_point("chunk.written", path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _write_file(path: Path, pieces: Sequence[bytes]) -> None:
    # Unbuffered: a chunk is one large write, and a buffer would only copy it.
    with path.open("wb", buffering=0) as output:
        for piece in pieces:
            rest = memoryview(piece)
            # One call writes at most 2 GiB.
            while rest:
                rest = rest[os.write(output.fileno(), rest) :]
        # Starts writing to disk without waiting, so that the commit has little left to sync.
        os.posix_fadvise(output.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _compressor(metadata: ArrayMetadata) -> Blosc | None:
    settings = blosc_settings(metadata.codec, metadata.dtype)
    if settings is None:
        return None
    from numcodecs.blosc import Blosc  # noqa: PLC0415

    return Blosc(settings["cname"], settings["clevel"], _SHUFFLES.index(settings["shuffle"]), settings["blocksize"])


def _decoded(encoded: memoryview, out: NDArray[Any] | None = None) -> Any:
    """The data of a chunk that Blosc compressed: ``out``, filled, or by default new memory."""
    from numcodecs.blosc import Blosc  # noqa: PLC0415

    # Blosc's header says how the data was compressed.
    return Blosc().decode(encoded, out)


def _encoded(compressor: Blosc, chunk: NDArray[Any]) -> bytes:
    with _one_thread():
        encoded: bytes = compressor.encode(chunk)
    return encoded


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep Blosc from using threads of its own, which numcodecs allows in the main thread only.

    Threads append their blocks in the order in which they finish, so equal chunks would not have equal bytes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    import numcodecs.blosc as library  # noqa: PLC0415

    before, library.use_threads = library.use_threads, False
    try:
        yield
    finally:
        library.use_threads = before
