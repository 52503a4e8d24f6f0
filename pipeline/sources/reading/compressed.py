"""Streams of gzip and Zstandard files, with one clear error for truncated or damaged ones."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from gnnloom.storage.errors import InputError

#: The most bytes that one byte of a compressed file can stand for, by suffix: in gzip, 258 bytes take at least
#: 2 bits (RFC 1951); in Zstandard, a block of 128 KiB takes at least 4 bytes (RFC 8878).
EXPANSION = {".gz": 1032, ".zst": 1 << 15}
#: Suffixes of compressed files.
SUFFIXES = tuple(EXPANSION)
#: Size of the buffer of decompressed bytes.
_BUFFER = 1 << 20
#: Largest window of a Zstandard frame, the memory that its decompression takes, in any case and per byte of the file.
#: `zstd` uses 8 MiB at most, and more only if it is asked to (`--long`, `--ultra`).
_FREE_WINDOW, _WINDOW_PER_BYTE = 32 << 20, 4


@contextmanager
def decompressed(stored: BinaryIO, location: str, size: int | None = None) -> Iterator[BinaryIO]:
    """Open the contents of a compressed stream.

    Args:
        stored: the compressed bytes.
        location: path or URL of the file; its suffix determines the compression.
        size: number of compressed bytes; None if it is unknown.

    Raises:
        InputError: the compressed data is truncated or damaged, which is raised when it is read; or decompression
            would take far more memory than the file's size.
    """
    if location.endswith(".zst"):
        _check_window(stored, location, size)
        with io.BufferedReader(_ZstdStream(stored, location), _BUFFER) as stream:
            yield cast("BinaryIO", stream)
        return
    try:
        with gzip.GzipFile(fileobj=stored, mode="rb") as gzip_stream:
            yield cast("BinaryIO", gzip_stream)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise damaged(location, "gzip", error) from error


def _check_window(stored: BinaryIO, location: str, size: int | None) -> None:
    """Refuse a file whose first frame asks for much more memory than the file has bytes."""
    if size is None or not isinstance(stored, io.BufferedReader):
        return
    head = stored.peek(6)
    # RFC 8878, 3.1.1.1: the magic number, a descriptor, and unless the frame is a single segment, its window.
    if len(head) < 6 or head[:4] != b"\x28\xb5\x2f\xfd" or head[4] & 0x20:
        return
    base = 1 << (10 + (head[5] >> 3))
    window = base + base // 8 * (head[5] & 7)
    if window > _FREE_WINDOW + _WINDOW_PER_BYTE * size:
        raise InputError(
            f"{location}: a file of {size:,} bytes whose decompression takes a window of {window:,} bytes; compress it"
            " again without --long and --ultra"
        )


def damaged(location: str, what: str, error: Exception) -> InputError:
    """The error for compressed data that cannot be read to the end."""
    return InputError(f"{location}: truncated or damaged {what} file ({error}); fetch or compress it again")


class _ZstdStream(io.RawIOBase):
    """Arrow's reader of Zstandard frames, which unlike others does not mistake a truncated file for a short one."""

    def __init__(self, stored: BinaryIO, location: str) -> None:
        import pyarrow as pa  # noqa: PLC0415 - only Zstandard files need it

        super().__init__()
        self._stream: Any = pa.CompressedInputStream(pa.PythonFile(stored, mode="r"), "zstd")
        self._location = location

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return int(self._stream.readinto(buffer))
        except OSError as error:
            raise damaged(self._location, "zstd", error) from error
