"""Zip archives from elsewhere, opened without trusting their claims, and the checksums of their members."""

from __future__ import annotations

import errno
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.storage.errors import GnnloomError, InputError

#: Names of an archive's members that an error lists at most.
_SHOWN_NAMES = 20
#: Maximum size in bytes of the directory of a zip archive, from which Python makes an object for every member.
_MOST_DIRECTORY_BYTES = 2 << 20
#: Errors of zipfile for a damaged archive, besides OSError for offsets outside of the file.
_ZIP_ERRORS = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError, RuntimeError, ValueError, OverflowError,
)  # fmt: skip
#: End of a member's header in a zip archive: the lengths of its name and its extra field.
_LOCAL_HEADER = struct.Struct("<26x2H")
#: The polynomial of CRC-32 (IEEE 802.3) without its highest term, lowest bit first.
_POLYNOMIAL = 0xEDB88320


def listed(names: Sequence[str]) -> str:
    """The first names in a file, for an error: they may hold line ends, and there may be many."""
    return ", ".join(name if name.isprintable() else ascii(name) for name in names[:_SHOWN_NAMES])


@contextmanager
def opened_zip(file: SourceFile, fault: str) -> Iterator[tuple[zipfile.ZipFile, BinaryIO]]:
    """Open a zip archive and the bytes in which it is stored.

    Args:
        fault: how the error describes a file that cannot be read as the expected archive.

    Raises:
        InputError: the archive is damaged; also raised when it is read.
    """
    with file.open_stored() as stored:
        try:
            _check_directory(file, stored)
            with zipfile.ZipFile(stored) as archive:
                _check_methods(file, archive)
                yield archive, stored
        except GnnloomError:
            raise
        except (*_ZIP_ERRORS, OSError) as error:
            # A damaged directory makes zipfile seek to offsets that no file has.
            if isinstance(error, OSError) and error.errno not in {None, errno.EINVAL}:
                raise
            raise InputError(
                f"{file.location}: {fault}, or on a server that cannot send ranges of bytes ({error}); fetch or save it"
                " again"
            ) from error


def _check_directory(file: SourceFile, stored: BinaryIO) -> None:
    """Refuse an archive with too many members before an object is made for each member."""
    # zipfile has no public way to the size of the directory; a parser of our own could find another one.
    ending = zipfile._EndRecData(stored)  # type: ignore[attr-defined]  # noqa: SLF001
    size = ending[zipfile._ECD_SIZE] if ending else 0  # type: ignore[attr-defined]  # noqa: SLF001
    if size > _MOST_DIRECTORY_BYTES:
        raise InputError(
            f"{file.location}: the archive's directory has {size:,} bytes, at most {_MOST_DIRECTORY_BYTES:,} are read;"
            " save fewer arrays per file"
        )


def _check_methods(file: SourceFile, archive: zipfile.ZipFile) -> None:
    """Refuse methods of compression whose data zipfile expands at once, however much that is."""
    for info in archive.infolist():
        if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise InputError(
                f"{file.location}: {listed([info.filename])} is compressed by another method than deflate; save it with"
                " np.savez_compressed"
            )


def data_offset(info: zipfile.ZipInfo, stored: BinaryIO) -> int:
    """Offset of the data of a zip archive's member.

    Args:
        stored: the bytes of the archive.

    Raises:
        struct.error: the archive ends before.
    """
    # The central directory does not give the length of the local header, whose extra field writers pad to align data.
    stored.seek(info.header_offset)
    name_bytes, extra_bytes = _LOCAL_HEADER.unpack(stored.read(_LOCAL_HEADER.size))
    return info.header_offset + _LOCAL_HEADER.size + int(name_bytes) + int(extra_bytes)


def combined_crc(first: int, second: int, second_bytes: int) -> int:
    """CRC-32 of two ranges of bytes one after the other.

    Appending n bytes multiplies the first checksum by x^(8n), modulo the polynomial; see crc32_combine of zlib.

    Args:
        first, second: checksums of the two ranges.
        second_bytes: length of the second range.
    """
    return _multiplied(_power(8 * second_bytes), first) ^ second


def _power(exponent: int) -> int:
    """x^exponent modulo the polynomial, by repeated squaring."""
    result, square = 1 << 31, 1 << 30
    while exponent:
        if exponent & 1:
            result = _multiplied(square, result)
        square = _multiplied(square, square)
        exponent >>= 1
    return result


def _multiplied(a: int, b: int) -> int:
    """Product of two polynomials modulo the polynomial; the highest bit is the constant term."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1
    return product
