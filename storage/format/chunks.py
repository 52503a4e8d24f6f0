"""The chunks of a Zarr array: Zarr's own bytes, in and out of files in the caller's thread.

Zarr hands every chunk to an event loop and from there to a pool of threads, and copies it twice on the way, which
costs as much as the compression, and a small chunk ten times as much as its bytes.  A chunk has one writer, and a
process reads few at a time, so that they need neither.
"""

from __future__ import annotations

import json
import math
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import google_crc32c
import numpy as np
import zarr
from numcodecs.blosc import Blosc
from numpy.typing import NDArray
from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import BloscCodec, BloscShuffle, Crc32cCodec

from gnnloom.storage.errors import InputError

#: What ``--codec`` offers: no compression; compression that costs hardly any time; the smallest files.
CODECS: Final = ("none", "fast", "small")
DEFAULT_CODEC: Final = "fast"

_SHUFFLES: Final = {"noshuffle": Blosc.NOSHUFFLE, "shuffle": Blosc.SHUFFLE, "bitshuffle": Blosc.BITSHUFFLE}


def compressors(codec: str, dtype: np.dtype[Any]) -> list[BytesBytesCodec]:
    """The codecs of Zarr that ``codec`` (one of ``CODECS``) stands for, for arrays of ``dtype``.

    Chosen by measurement (tests/benchmarks/RESULTS.md): ids gain most from a shuffle of bytes, and floats
    from one of bits.  Zarr's core codecs only, so that every reader of Zarr reads what is written.

    Raises:
        InputError: there is no such codec.
    """
    if codec == "none":
        return [Crc32cCodec()]
    if codec == "fast":
        return [BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=dtype.itemsize), Crc32cCodec()]
    if codec == "small":
        shuffle = BloscShuffle.bitshuffle if dtype.kind == "f" else BloscShuffle.shuffle
        return [BloscCodec(cname="zstd", clevel=3, shuffle=shuffle, typesize=dtype.itemsize), Crc32cCodec()]
    raise InputError(f"codec {codec!r}: expected one of {', '.join(CODECS)}")


class ChunkWriter:
    """Writes whole chunks of an array whose chunks are ranges of rows."""

    def __init__(self, path: Path, array: zarr.Array[Any]) -> None:
        """Write below ``path``, the folder of ``array``.

        Raises:
            InputError: the array has codecs that gnnloom does not write.
        """
        self._folder = path / "c"
        self._shape: tuple[int, ...] = tuple(array.chunks)
        self._blosc = _compressor(path, array.compressors)
        self._dtype = np.dtype(array.dtype).newbyteorder("<")
        self._folder.mkdir(exist_ok=True)

    def write(self, start: int, rows: NDArray[Any]) -> None:
        """Write ``rows`` from row ``start``, which begins a chunk, on; the last chunk is filled up with zeros."""
        if rows.size == 0:
            return
        length = self._shape[0]
        for first in range(0, len(rows), length):
            chunk = np.ascontiguousarray(rows[first : first + length], dtype=self._dtype)
            if chunk.shape != self._shape:
                filled = np.zeros(self._shape, dtype=self._dtype)
                filled[: len(chunk)] = chunk
                chunk = filled
            self._put((start + first) // length, chunk)

    def _put(self, number: int, chunk: NDArray[Any]) -> None:
        encoded = chunk.tobytes() if self._blosc is None else self._blosc.encode(chunk)
        checksum = google_crc32c.value(encoded).to_bytes(4, "little")
        file = self._folder.joinpath(str(number), *["0"] * (chunk.ndim - 1))
        file.parent.mkdir(parents=True, exist_ok=True)
        # Renamed when it is whole: a task that was taken for dead may write once more what is recorded by now.
        temporary = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
        try:
            _write_file(temporary, (encoded, checksum))
            temporary.replace(file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


class ChunkReader:
    """Reads chunks of an array that :class:`ChunkWriter` can write."""

    def __init__(self, path: Path) -> None:
        """Read what ``path``, the folder of the array, says of it.

        Raises:
            OSError, ValueError, KeyError, TypeError: it is not there, no such array, or damaged.
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
        """The file of the chunk that begins with row ``number * chunks[0]``."""
        return self._folder.joinpath(str(number), *["0"] * (len(self.shape) - 1))

    def read(self, number: int) -> tuple[NDArray[Any], int]:
        """A whole chunk, what fills up the last one with it, and the bytes of its file.

        Raises:
            FileNotFoundError: it is missing.
            ValueError, RuntimeError: it is damaged.
        """
        stored = self.file(number).read_bytes()
        encoded = stored[:-4]
        if google_crc32c.value(encoded) != int.from_bytes(stored[-4:], "little"):
            raise ValueError("the checksum is wrong")
        plain = Blosc().decode(encoded) if self._compressed else encoded
        if len(plain) != self.dtype.itemsize * math.prod(self.chunks):
            raise ValueError(f"{len(plain)} bytes, expected {self.dtype.itemsize * math.prod(self.chunks)}")
        return np.frombuffer(plain, self.dtype).reshape(self.chunks), len(stored)


def _write_file(path: Path, parts: Sequence[bytes]) -> None:
    with path.open("wb", buffering=0) as output:
        for part in parts:
            rest = memoryview(part)
            while rest:  # the system takes 2 GiB at most at a time
                rest = rest[os.write(output.fileno(), rest) :]
        # Starts writing to the disk without waiting for it, so that the commit finds little left to sync.
        os.posix_fadvise(output.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _compressor(path: Path, codecs: Sequence[Any]) -> Blosc | None:
    """The compressor of an array with a checksum behind it, as :func:`compressors` gives them."""
    if not codecs or not isinstance(codecs[-1], Crc32cCodec) or len(codecs) > 2:
        raise InputError(f"{path}: has codecs that gnnloom does not write ({codecs})")
    if len(codecs) == 1:
        return None
    if not isinstance(codecs[0], BloscCodec):
        raise InputError(f"{path}: has codecs that gnnloom does not write ({codecs})")
    settings = codecs[0]
    return Blosc(settings.cname.value, settings.clevel, _SHUFFLES[settings.shuffle.value], settings.blocksize)
