"""Decodes the bytes of a file: compression, UTF-16 and carriage returns.

The first bytes of a local file decide, because its name may be missing an ending or have a wrong one. For remote files,
names decide.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, cast

from gnnloom.storage.errors import InputError
from gnnloom.storage.system_errors import check_is_of_content

#: Size of the buffer of decoded bytes, and of the pieces that are decoded.
_BUFFER, _PIECE = 1 << 20, 1 << 16
#: Largest window of a Zstandard frame, the memory that its decompression takes, in any case and per byte of the file.
#: `zstd` uses 8 MiB at most, and more only if it is asked to (`--long`, `--ultra`).
_FREE_WINDOW, _WINDOW_PER_BYTE = 32 << 20, 4
#: Memory that decompression of an xz file may take; its highest level takes 65 MiB.
_XZ_MEMORY: Final = 256 << 20
#: Names that macOS adds to archives next to the files.
_BESIDE: Final = re.compile(r"^__MACOSX/|(^|/)\.DS_Store$")


@dataclass(frozen=True)
class Coding:
    """One way in which bytes stand for contents.

    Attributes:
        name: name of the coding.
        suffix: ending of file names; empty if files with it have no ending of their own.
        magic: first bytes; empty if they do not decide.
        expansion: the most bytes that one byte of a file can stand for.
        opened: opens the contents of a stream of stored bytes; takes its location and its size or None.
    """

    name: str
    suffix: str
    magic: bytes
    expansion: int
    opened: Callable[[BinaryIO, str, int | None], Any]


def damaged(location: str, what: str, error: Exception) -> InputError:
    """The error for compressed data that cannot be read to the end."""
    return InputError(f"{location}: truncated or damaged {what} file ({error}); fetch or compress it again")


@contextmanager
def _gzip(stored: BinaryIO, location: str, _: int | None) -> Iterator[BinaryIO]:
    try:
        with gzip.GzipFile(fileobj=stored, mode="rb") as stream:
            yield cast("BinaryIO", stream)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise damaged(location, "gzip", error) from error


@contextmanager
def _bzip2(stored: BinaryIO, location: str, _: int | None) -> Iterator[BinaryIO]:
    with _reported(location, "bzip2"), bz2.BZ2File(stored) as stream:
        yield cast("BinaryIO", stream)


@contextmanager
def _xz(stored: BinaryIO, location: str, _: int | None) -> Iterator[BinaryIO]:
    with _reported(location, "xz"), io.BufferedReader(_XzStream(stored), _BUFFER) as stream:
        yield cast("BinaryIO", stream)


class _XzStream(io.RawIOBase):
    """Reader of the streams in an xz file, whose decompression takes a bounded amount of memory."""

    def __init__(self, stored: BinaryIO) -> None:
        super().__init__()
        self._stored, self._stream = stored, self._next_stream()

    def _next_stream(self) -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(memlimit=_XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            piece = b""
            if self._stream.eof:
                # Zeros may be between streams, and after the last one.
                piece = self._stream.unused_data.lstrip(b"\0")
                while not piece:
                    stored = self._stored.read(_PIECE)
                    if not stored:
                        return 0
                    piece = stored.lstrip(b"\0")
                self._stream = self._next_stream()
            elif self._stream.needs_input:
                piece = self._stored.read(_PIECE)
                if not piece:
                    raise EOFError("it ends before the end of its data")
            found = self._stream.decompress(piece, len(buffer))
            if found:
                buffer[: len(found)] = found
                return len(found)


@contextmanager
def _zip(stored: BinaryIO, location: str, _: int | None) -> Iterator[BinaryIO]:
    with _reported(location, "zip"), zipfile.ZipFile(stored) as archive:
        members = [each for each in archive.infolist() if not (each.is_dir() or _BESIDE.search(each.filename))]
        if len(members) != 1:
            names = ", ".join(each.filename for each in members[:3]) or "nothing"
            raise InputError(f"{location}: a zip archive of {len(members)} files ({names}); unpack it, and name one")
        if members[0].flag_bits & 1:
            raise InputError(f"{location}: an encrypted zip archive; unpack it, and name the file in it")
        with archive.open(members[0]) as stream:
            yield cast("BinaryIO", stream)


@contextmanager
def _reported(location: str, what: str) -> Iterator[None]:
    """Inside the block, an error of a decompressor becomes the error of a damaged file."""
    try:
        yield
    except (EOFError, lzma.LZMAError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise damaged(location, what, error) from error
    except OSError as error:
        check_is_of_content(error, location)
        raise damaged(location, what, error) from error


@contextmanager
def _zstd(stored: BinaryIO, location: str, size: int | None) -> Iterator[BinaryIO]:
    _check_window(stored, location, size)
    with io.BufferedReader(_ZstdStream(stored, location), _BUFFER) as stream:
        yield cast("BinaryIO", stream)


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
            check_is_of_content(error, self._location)
            raise damaged(self._location, "zstd", error) from error


@contextmanager
def _utf16(stored: BinaryIO, location: str, _: int | None) -> Iterator[BinaryIO]:
    with io.BufferedReader(_TextStream(stored, location, "utf-16"), _BUFFER) as stream:
        yield cast("BinaryIO", stream)


@contextmanager
def _returns(stored: BinaryIO, location: str, _: int | None) -> Iterator[BinaryIO]:
    # Latin-1 gives every byte back as it was.
    with io.BufferedReader(_TextStream(stored, location, "latin-1"), _BUFFER) as stream:
        yield cast("BinaryIO", stream)


class _TextStream(io.RawIOBase):
    """Text of an encoding and with any line ends, as UTF-8 with line feeds (as Latin-1 if that is the encoding)."""

    def __init__(self, stored: BinaryIO, location: str, encoding: str) -> None:
        super().__init__()
        # With newline=None, the wrapper reads CR and CR LF as LF.
        self._text = io.TextIOWrapper(stored, encoding, newline=None)
        self._location, self._encoding = location, encoding
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            try:
                self._rest = self._text.read(_PIECE).encode("latin-1" if self._encoding == "latin-1" else "utf-8")
            except UnicodeError as error:
                raise InputError(f"{self._location}: not text in {self._encoding} ({error})") from error
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count

    def close(self) -> None:
        # The caller closes the stream of stored bytes that it opened.
        if not self.closed:
            self._text.detach()
        super().close()


#: All codings by name. In gzip, 258 bytes take at least 2 bits (RFC 1951); in Zstandard, a block of 128 KiB takes at
#: least 4 bytes (RFC 8878); in bzip2, a block of 45.9 MB about 40 bytes; in LZMA, 273 bytes about a third of a bit.
CODINGS: Final[Mapping[str, Coding]] = {
    each.name: each
    for each in (
        Coding("gzip", ".gz", b"\x1f\x8b\x08", 1032, _gzip),
        Coding("zstd", ".zst", b"\x28\xb5\x2f\xfd", 1 << 15, _zstd),
        Coding("bzip2", ".bz2", b"BZh", 1 << 21, _bzip2),
        Coding("xz", ".xz", b"\xfd7zXZ\0", 1 << 13, _xz),
        Coding("zip", ".zip", b"", 1032, _zip),
        Coding("utf-16", "", b"", 2, _utf16),
        Coding("carriage returns", "", b"", 1, _returns),
    )
}
#: Endings of the names of compressed files.
SUFFIXES: Final = tuple(coding.suffix for coding in CODINGS.values() if coding.suffix)


def coding_of(name: str, first: bytes | None) -> str:
    """The name of the coding of a file; empty if its bytes are its contents.

    Args:
        name: name of the file.
        first: its first bytes; None if they are not known.

    >>> coding_of("edges.txt", b"BZh91AY"), coding_of("edges.txt.gz", None), coding_of("edges.txt", b"0 1 2")
    ('bzip2', 'gzip', '')
    """
    for coding in CODINGS.values():
        if coding.magic and first is not None and first.startswith(coding.magic):
            return coding.name
    for coding in CODINGS.values():
        if coding.suffix and name.lower().endswith(coding.suffix):
            return coding.name
    if first is None:
        return ""
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    is_text = b"\0" not in first
    return "carriage returns" if is_text and b"\n" not in first and b"\r" in first.rstrip(b"\r") else ""


def without_suffix(name: str) -> str:
    """The name of a file without the ending of compressed files.

    >>> without_suffix("edges.csv.GZ")
    'edges.csv'
    """
    ending = next((suffix for suffix in SUFFIXES if name.lower().endswith(suffix)), "")
    return name[: len(name) - len(ending)]
