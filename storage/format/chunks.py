"""The chunks of a Zarr array, read and written in the caller's thread; the bytes are those that Zarr writes.

Zarr passes every chunk to an event loop and a pool of threads, and copies it twice. That costs as much as the
compression, and ten times as much for a small chunk. gnnloom needs neither: a chunk has one writer, and a process reads
few chunks at a time.
"""

from __future__ import annotations

import json
import math
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.errors import InputError

if TYPE_CHECKING:
    import zarr
    from numcodecs.blosc import Blosc
    from zarr.abc.codec import BytesBytesCodec

# Zarr and numcodecs are slow to import, so only the functions that need them do: listings read nothing but metadata.

#: Choices of ``--codec``: no compression; compression that takes almost no time; the smallest files.
CODECS: Final = ("none", "fast", "small")
DEFAULT_CODEC: Final = "fast"

#: Names of Blosc's filters, at the numbers that numcodecs gives them.
_SHUFFLES: Final = ("noshuffle", "shuffle", "bitshuffle")


def compressors(codec: str, dtype: np.dtype[Any]) -> list[BytesBytesCodec]:
    """The Zarr codecs for a choice of ``CODECS`` and arrays of ``dtype``.

    Chosen by measurement (tests/benchmarks/RESULTS.md): ids gain most from shuffling bytes, floats from shuffling
    bits. All are core codecs of Zarr, so that every Zarr reader can read the arrays.

    Raises:
        InputError: ``codec`` is not one of ``CODECS``.
    """
    from zarr.codecs import BloscCodec, BloscShuffle, Crc32cCodec  # noqa: PLC0415

    # The checksum is the last codec, so it covers the stored bytes: a damaged chunk is found before it is decompressed.
    if codec == "none":
        return [Crc32cCodec()]
    if codec == "fast":
        return [BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=dtype.itemsize), Crc32cCodec()]
    if codec == "small":
        shuffle = BloscShuffle.bitshuffle if dtype.kind == "f" else BloscShuffle.shuffle
        return [BloscCodec(cname="zstd", clevel=3, shuffle=shuffle, typesize=dtype.itemsize), Crc32cCodec()]
    raise InputError(f"codec {codec!r}: expected one of {', '.join(CODECS)}")


class ChunkWriter:
    """Writes the chunks of an array that is split along its first axis only."""

    def __init__(self, path: Path, array: zarr.Array[Any]) -> None:
        """Prepare to write below ``path``, the folder of ``array``.

        Raises:
            InputError: the array has codecs that gnnloom does not write.
        """
        self._folder = path / "c"
        # The shape of a chunk, not of the array: Zarr stores the last chunk at full size too.
        self._shape: tuple[int, ...] = tuple(array.chunks)
        self._blosc = _compressor(path, array.compressors)
        self._dtype = np.dtype(array.dtype).newbyteorder("<")
        self._folder.mkdir(exist_ok=True)

    def write(self, start: int, rows: NDArray[Any]) -> None:
        """Write rows, beginning at row ``start``, which must begin a chunk; zeros fill up the last chunk.

        Args:
            rows: (num_rows, ...), with the array's sizes along the other dimensions.
        """
        if rows.size == 0:
            return
        length = self._shape[0]
        for first in range(0, len(rows), length):
            chunk = np.ascontiguousarray(rows[first : first + length], dtype=self._dtype)
            if chunk.shape != self._shape:
                # Zeros, not uninitialized memory: the same rows must give the same file, padding included.
                filled = np.zeros(self._shape, dtype=self._dtype)
                filled[: len(chunk)] = chunk
                chunk = filled
            self._put((start + first) // length, chunk)

    def _put(self, number: int, chunk: NDArray[Any]) -> None:
        encoded = chunk.tobytes() if self._blosc is None else self._blosc.encode(chunk)
        checksum = google_crc32c.value(encoded).to_bytes(4, "little")
        # Arrays are split along the first axis only, so the chunk's other coordinates are always 0.
        file = self._folder.joinpath(str(number), *["0"] * (chunk.ndim - 1))
        file.parent.mkdir(parents=True, exist_ok=True)
        # Renamed when whole: a task that was believed dead may still write a chunk that is already recorded.
        temporary = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
        try:
            _write_file(temporary, (encoded, checksum))
            temporary.replace(file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


class ChunkReader:
    """Reads the chunks of an array that :class:`ChunkWriter` can write."""

    def __init__(self, path: Path) -> None:
        """Read the metadata in ``path``, the folder of the array.

        Raises:
            OSError, ValueError, KeyError, TypeError: the metadata is missing, damaged, or of another kind of array.
        """
        content = json.loads((path / "zarr.json").read_bytes())
        names = [codec["name"] for codec in content["codecs"]]
        if content["node_type"] != "array" or names not in (["bytes", "crc32c"], ["bytes", "blosc", "crc32c"]):
            raise ValueError(f"an array with codecs {names}, which gnnloom does not read")
        self._folder = path / "c"
        self._compressed = "blosc" in names
        self.shape = tuple(int(size) for size in content["shape"])
        self.chunks = tuple(int(size) for size in content["chunk_grid"]["configuration"]["chunk_shape"])
        self.dtype = np.dtype(content["data_type"]).newbyteorder("<")

    def file(self, number: int) -> Path:
        """File of the chunk that begins at row ``number * chunks[0]``."""
        return self._folder.joinpath(str(number), *["0"] * (len(self.shape) - 1))

    def read(self, number: int) -> tuple[NDArray[Any], int]:
        """Read a whole chunk, including the padding of the last one.

        Returns:
            The chunk, a read-only array of shape ``chunks``, and the size of its file in bytes.

        Raises:
            FileNotFoundError: the chunk is missing.
            ValueError, RuntimeError: the chunk is damaged.
        """
        from numcodecs.blosc import Blosc  # noqa: PLC0415

        stored = self.file(number).read_bytes()
        encoded = stored[:-4]
        if google_crc32c.value(encoded) != int.from_bytes(stored[-4:], "little"):
            raise ValueError("the checksum is wrong")
        plain = Blosc().decode(encoded) if self._compressed else encoded
        # A valid checksum shows that the bytes are those written, not that they fit the shape in zarr.json.
        if len(plain) != self.dtype.itemsize * math.prod(self.chunks):
            raise ValueError(f"{len(plain)} bytes, expected {self.dtype.itemsize * math.prod(self.chunks)}")
        return np.frombuffer(plain, self.dtype).reshape(self.chunks), len(stored)


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


def _compressor(path: Path, codecs: Sequence[Any]) -> Blosc | None:
    """The compressor among the codecs of an array, which must be codecs that :func:`compressors` returns."""
    from numcodecs.blosc import Blosc  # noqa: PLC0415
    from zarr.codecs import BloscCodec, Crc32cCodec  # noqa: PLC0415

    # Other codecs are refused rather than ignored: ChunkWriter encodes by itself, so Zarr would decode its bytes
    # wrongly.
    if not codecs or not isinstance(codecs[-1], Crc32cCodec) or len(codecs) > 2:
        raise InputError(f"{path}: codecs that gnnloom does not write ({codecs})")
    if len(codecs) == 1:
        return None
    if not isinstance(codecs[0], BloscCodec):
        raise InputError(f"{path}: codecs that gnnloom does not write ({codecs})")
    settings = codecs[0]
    return Blosc(settings.cname.value, settings.clevel, _SHUFFLES.index(settings.shuffle.value), settings.blocksize)
