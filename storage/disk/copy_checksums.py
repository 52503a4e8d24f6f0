"""Checksums of the files of an uncompressed copy, and a record for each node of the files that it has compared.

``checksums.json`` in the copy's folder has a checksum for every block of every file. The first process of a node that
uses the copy compares them, and notes the inode, size and times of the files in a ``checked-*.json``. No process of the
node compares again until these change or the node restarts: any change of a file changes its times.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import google_crc32c
import numpy as np
import xxhash
from numpy.typing import NDArray

from gnnloom.storage.disk.files import parsing, read_json, write_json
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.machine_boot import this_boot
from gnnloom.storage.system_errors import check_is_of_content, naming

CHECKSUMS: Final = "checksums.json"

#: Bytes of a block: large enough to read a disk at full speed. And the most that a copy may have, all in memory.
_BLOCK_BYTES: Final = 4 << 20
_MOST_BLOCK_BYTES: Final = 64 << 20
#: Block sizes are multiples of the largest item size, so that no number lies in two blocks.
_LARGEST_ITEM: Final = 8
#: Hexadecimal digits of the checksum of one block.
_DIGITS: Final = 8
#: The time of a file is the kernel's last clock tick: two changes within this time may have the same.
_TICK_SECONDS: Final = 0.02


class ChecksumFile:
    """Writes a file from consecutive pieces, and computes the checksums of its blocks."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, path.open("wb")
        self._bytes, self._checksum = 0, 0
        self._checksums: list[str] = []

    def write(self, data: bytes | memoryview) -> None:
        """Add bytes at the end."""
        with naming(self._path):
            self._file.write(data)
        rest = np.frombuffer(data, np.uint8)
        while len(rest):
            some = rest[: _BLOCK_BYTES - self._bytes % _BLOCK_BYTES]
            self._checksum = google_crc32c.extend(self._checksum, some)
            self._bytes += len(some)
            rest = rest[len(some) :]
            if self._bytes % _BLOCK_BYTES == 0:
                self._end_block()

    def content(self) -> dict[str, Any]:
        """Content of ``checksums.json`` for the file; nothing may be written afterwards."""
        if self._bytes % _BLOCK_BYTES:
            self._end_block()
        return {"bytes": self._bytes, "checksums": "".join(self._checksums)}

    def _end_block(self) -> None:
        self._checksums.append(_digits(self._checksum))
        self._checksum = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Writes the buffered data.
        with naming(self._path):
            self._file.close()


def write_checksums(folder: Path, files: dict[str, dict[str, Any]]) -> None:
    """Write the checksums of a copy.

    Args:
        files: by name, the result of :meth:`ChecksumFile.content`.
    """
    write_json(folder / CHECKSUMS, {"block_bytes": _BLOCK_BYTES, "files": files}, durable=False)


class ContentCheck(Protocol):
    """Checks what a file holds, in the pass that compares it with its checksums."""

    def add(self, block: NDArray[np.uint8]) -> None:
        """Check the next bytes; raises CorruptError."""
        ...

    def end(self) -> None:
        """Run the checks that need all bytes; raises CorruptError."""
        ...


def check_files(folder: Path, files: Mapping[str, ContentCheck | None]) -> None:
    """Read files of a copy, compare them with its checksums, and check what they hold.

    Args:
        files: for each name, the check of the content; None if any content is right.

    Raises:
        CorruptError: a file is missing or differs, the copy has no checksums, or a content is wrong.
    """
    path = folder / CHECKSUMS
    try:
        content = read_json(path)
    except FileNotFoundError:
        raise CorruptError(f"{folder}: a copy without {CHECKSUMS}") from None
    with parsing(path, "a list of checksums"):
        block_bytes = int(content["block_bytes"])
        if block_bytes % _LARGEST_ITEM or not 0 < block_bytes <= _MOST_BLOCK_BYTES:
            raise CorruptError(f"{path}: blocks of {block_bytes} bytes")
        for name, check in files.items():
            wanted = content["files"][name]
            _check_file(folder / name, block_bytes, int(wanted["bytes"]), str(wanted["checksums"]), check)


def _check_file(path: Path, block_bytes: int, num_bytes: int, checksums: str, check: ContentCheck | None) -> None:
    try:
        with path.open("rb", buffering=0) as file:
            # Read, not mapped: whole blocks in order are several times as fast as page faults.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            if os.fstat(file.fileno()).st_size != num_bytes:
                raise CorruptError(f"{path}: {os.fstat(file.fileno()).st_size} bytes, expected {num_bytes}")
            # From the beginning of a page on: some processors take several times as long to copy to 16 bytes behind it,
            # where large arrays of NumPy begin.
            block = np.empty(min(block_bytes, num_bytes) + mmap.PAGESIZE, np.uint8)
            block = block[-block.ctypes.data % mmap.PAGESIZE :]
            for number, start in enumerate(range(0, num_bytes, block_bytes)):
                some = block[: min(block_bytes, num_bytes - start)]
                wanted = checksums[number * _DIGITS : (number + 1) * _DIGITS]
                if not _fill(file.readinto, some) or _digits(google_crc32c.value(some)) != wanted:
                    raise CorruptError(f"{path}: damaged between bytes {start} and {start + len(some)}")
                # The checksum shows that the bytes are unchanged, but the writer may have written wrong values.
                if check is not None:
                    check.add(some)
            if check is not None:
                check.end()
    except OSError as error:
        check_is_of_content(error, path)
        raise CorruptError(f"{path}: the copy cannot be read ({error.strerror})") from error


def _fill(read_into: Any, out: np.ndarray[Any, Any]) -> bool:
    """Fill a buffer from a file; returns whether there were enough bytes."""
    rest = out.data
    while rest:
        count = read_into(rest)
        if not count:
            return False
        rest = rest[count:]
    return True


def _digits(checksum: int) -> str:
    return f"{checksum:0{_DIGITS}x}"


def is_checked(folder: Path, names: Iterable[str]) -> bool:
    """Whether a process of this node has compared these files, and none has changed since."""
    try:
        note = read_json(_note_path(folder))
    except (CorruptError, OSError):
        # A damaged note costs one more comparison.
        return False
    found, files = identities(folder, names), note.get("files")
    is_ours = all(note.get(name) == value for name, value in this_boot().items())
    if not is_ours or found is None or not isinstance(files, dict):
        return False
    return all(files.get(name) == times for name, times in found.items())


def identities(folder: Path, names: Iterable[str]) -> dict[str, list[int]] | None:
    """Inode, size and times of files by name, which differ after any change; None if a file is missing."""
    found = {}
    for name in names:
        try:
            status = (folder / name).stat()
        except OSError:
            return None
        found[name] = [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    # A change that follows within the same tick of the clock would not be seen.
    newest = max((times[-1] for times in found.values()), default=0)
    if abs(time.time_ns() - newest) < _TICK_SECONDS * 1e9:
        time.sleep(_TICK_SECONDS)
    return found


def note_checked(folder: Path, found: dict[str, list[int]] | None) -> None:
    """Note that this node has compared files; where nothing can be written, the next process compares them again.

    Args:
        found: result of :func:`identities` before the files were compared.
    """
    if found is None:
        return
    with suppress(OSError):
        write_json(_note_path(folder), {**this_boot(), "files": found}, durable=False)


def _note_path(folder: Path) -> Path:
    # A hash, because the name of a host may have characters that names of files may not.
    return folder / f"checked-{xxhash.xxh3_64_hexdigest(this_boot()['host'].encode())}.json"


def is_own_file(name: str) -> bool:
    """Whether a file of a copy's folder is one that this module writes."""
    return name == CHECKSUMS or (name.startswith("checked-") and name.endswith(".json"))
