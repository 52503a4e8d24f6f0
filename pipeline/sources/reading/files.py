"""Finds, reads and fingerprints source files, local or remote, plain or compressed."""

from __future__ import annotations

import glob
import io
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

import xxhash

from gnnloom.pipeline.sources.reading.coding import CODINGS, coding_of
from gnnloom.storage.disk.files import user_path
from gnnloom.storage.disk.remote_folder import open_response, without_secrets
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.system_errors import OF_PERMISSION, check_is_of_content

#: Size in bytes of each block that enters a local file's fingerprint.
SAMPLE_BYTES = 1 << 16
#: Number of bytes requested from a web server at a time.
_REMOTE_BUFFER = 1 << 20
#: Number of sampled blocks between the first and the last.
SAMPLES = 16

#: Statuses of a web server that say that a file is not there.
_NOT_THERE = (404, 410)

_VERSION_FIELDS = ("etag", "ETag", "size", "mtime", "last_modified", "LastModified", "md5Hash", "crc32c", "content_md5")


class UnreachableError(InputError):
    """The server of a remote file does not answer, or refuses; the same command may work later."""


@dataclass(frozen=True)
class SourceFile:
    """A file as it was when the source was opened.

    Attributes:
        location: local path, or URL without user, password and query, as messages and stored facts show it.
        size: number of stored (compressed) bytes; None if the server does not report it.
        fingerprint: changes if the file changes.
        coding: coding of the stored bytes, a key of
            :data:`~gnnloom.pipeline.sources.reading.coding.CODINGS`; empty if they are the contents.
        url: the whole URL, with its secrets; empty for a local file.
    """

    location: str
    size: int | None
    fingerprint: str
    coding: str = ""
    url: str = field(default="", repr=False)

    @property
    def address(self) -> str:
        """The path or URL that opens the file."""
        return self.url or self.location

    @property
    def is_local(self) -> bool:
        return is_local(self.location)

    @property
    def is_compressed(self) -> bool:
        return bool(self.coding)

    @property
    def is_seekable(self) -> bool:
        """Whether ranges of bytes can be read independently."""
        return self.is_local and not self.is_compressed

    @property
    def most_bytes(self) -> int | None:
        """Upper bound of the size of the decoded contents; None if the stored size is unknown."""
        if self.size is None:
            return None
        return self.size * (CODINGS[self.coding].expansion if self.coding else 1)

    @property
    def path(self) -> Path:
        """Path of a local file."""
        return user_path(self.location.removeprefix("file://"))

    def identity(self) -> dict[str, Any]:
        """JSON for the keys of artifacts. It leaves out the folder, so a moved file keeps its identity."""
        name = self.location.rstrip("/").rpartition("/")[2]
        return {"name": name, "size": self.size, "fingerprint": self.fingerprint}

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the contents as a stream, decoded.

        Raises:
            NotFoundError: the file no longer exists.
            InputError: the compressed data is truncated or damaged; raised when it is read.
        """
        with self.open_stored(streaming=True) as stored, self.decoded(stored) as stream:
            yield stream

    def decoded(self, stored: BinaryIO) -> AbstractContextManager[BinaryIO]:
        """Open the contents of a stream of stored bytes.

        Raises:
            InputError: the compressed data is truncated or damaged, which is raised when it is read; or decompression
                would take far more memory than the file's size.
        """
        if not self.coding:
            return nullcontext(stored)
        opened: AbstractContextManager[BinaryIO] = CODINGS[self.coding].opened(stored, self.location, self.size)
        return opened

    @contextmanager
    def open_stored(self, *, streaming: bool = False) -> Iterator[BinaryIO]:
        """Open the stored bytes, without decompressing them.

        Args:
            streaming: read a remote file once from its start, which any web server supports.

        Raises:
            NotFoundError: the file no longer exists.
        """
        try:
            stream = self.path.open("rb") if self.is_local else _open_remote(self.address, self.size, streaming)
        except OSError as error:
            raise _unreadable(self.address, error) from error
        with stream:
            yield stream


def open_files(locations: Sequence[str]) -> tuple[SourceFile, ...]:
    """Find the files of a source.

    Args:
        locations: local paths, URLs that fsspec supports, or globs of either; the matches of a glob are sorted.

    Raises:
        NotFoundError: a file does not exist, or a glob matches nothing.
        InputError: no location is given, one is a folder, or a URL has an unknown protocol.
    """
    if not locations:
        raise InputError("no source given: name at least one file, URL or folder")
    return tuple(_describe(path) for location in locations for path in expand(location))


def open_file(location: str) -> SourceFile:
    """Find the only file of a location.

    Raises:
        NotFoundError: the file does not exist.
        InputError: a glob matches several files, or the location is a folder or a URL with an unknown protocol.
    """
    files = open_files([location])
    if len(files) != 1:
        raise InputError(f"{shown_location(location)}: expected one file, found {len(files)}")
    return files[0]


def find_table(root: str, name: str) -> SourceFile | None:
    """The ``.csv.gz`` or ``.csv`` file of a folder, named without its extension; None if there is none."""
    for suffix in (".csv.gz", ".csv"):
        try:
            return open_files([f"{root}/{name}{suffix}"])[0]
        except NotFoundError:
            continue
    return None


def is_local(location: str) -> bool:
    """Whether a location is a path or a ``file://`` URL."""
    return location.startswith("file://") or ("://" not in location and "::" not in location)


def is_folder(location: str) -> bool:
    """Whether a location is a folder of this machine."""
    return is_local(location) and user_path(location.removeprefix("file://")).is_dir()


def expand(location: str) -> list[str]:
    """The files that a location names: itself, or the sorted matches of a glob.

    Raises:
        NotFoundError: a glob matches nothing.
        InputError: the server does not list its files.
    """
    if is_local(location):
        plain = str(user_path(location.removeprefix("file://")))
        if Path(plain).exists() or not glob.has_magic(plain):
            return [plain]
        # Spark marks a complete folder with an empty file.
        found = sorted(path for path in glob.glob(plain, recursive=True) if Path(path).name != "_SUCCESS")
    elif "*" in location:
        file_system, path = _file_system(location)
        try:
            found = sorted(file_system.unstrip_protocol(match) for match in file_system.glob(path))
        except Exception as error:
            # Every storage has errors of its own.
            raise _unreadable(location, error) from error
    else:
        return [location]
    if not found:
        raise NotFoundError(f"{shown_location(location)}: no file matches")
    return found


def _describe(location: str) -> SourceFile:
    return _describe_local(location) if is_local(location) else _describe_remote(location)


def _describe_local(location: str) -> SourceFile:
    path = Path(location)
    if path.is_dir():
        raise InputError(f"{location}: a folder; name its files, or give the format of the folder (`--format ogb`)")
    try:
        status = path.stat()
        with path.open("rb") as file:
            # Samples, because reading a file of terabytes only to name it would take as long as the first pass.
            state = xxhash.xxh3_128(f"{status.st_size} {status.st_mtime_ns}".encode())
            last = max(0, status.st_size - SAMPLE_BYTES)
            first = b""
            for offset in sorted({last * sample // (SAMPLES + 1) for sample in range(SAMPLES + 2)}):
                file.seek(offset)
                sample = file.read(SAMPLE_BYTES)
                first = first or sample
                state.update(sample)
    except OSError as error:
        raise _unreadable(location, error) from error
    return SourceFile(location, status.st_size, state.hexdigest(), coding_of(path.name, first))


def _describe_remote(location: str) -> SourceFile:
    file_system, path = _file_system(location)
    try:
        info = file_system.info(path)
        version = [file_system.ukey(path), *(f"{name}={info[name]}" for name in _VERSION_FIELDS if name in info)]
    except (OSError, ValueError) as error:
        raise _unreadable(location, error) from error
    size, shown = info.get("size"), shown_location(location)
    return SourceFile(
        shown,
        None if size is None else int(size),
        xxhash.xxh3_128("\n".join(version).encode()).hexdigest(),
        coding_of(shown, None),
        location,
    )


def _file_system(location: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs  # noqa: PLC0415 - only remote files need it

    try:
        file_system, path = url_to_fs(location)  # type: ignore[no-untyped-call]
    except (ValueError, ImportError) as error:
        reason = str(error).replace(location, shown_location(location))
        raise InputError(f"{shown_location(location)}: this kind of URL cannot be opened ({reason})") from error
    return file_system, str(path)


def _open_remote(location: str, size: int | None, streaming: bool) -> BinaryIO:
    file_system, path = _file_system(location)
    if streaming and location.startswith(("http://", "https://")):
        return io.BufferedReader(_Response(open_response(file_system, path), location, size), _REMOTE_BUFFER)
    return cast("BinaryIO", file_system.open(path, "rb"))


class _Response(io.RawIOBase):
    """The response of a web server, read from its start: a response that fails or is cut off is an error."""

    def __init__(self, stream: BinaryIO, location: str, size: int | None) -> None:
        """Read a response.

        Args:
            size: number of bytes that the server states for the file; None if it states none.
        """
        self._stream, self._location, self._left = stream, location, size or 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        room = memoryview(buffer)
        try:
            found = self._stream.read(len(room))
        except Exception as error:
            # Every storage has errors of its own.
            raise _unreadable(self._location, error) from error
        self._left -= len(found)
        if not found and self._left > 0:
            raise InputError(f"{shown_location(self._location)}: cut off: {self._left:,} bytes are missing; try again")
        room[: len(found)] = found
        return len(found)

    def close(self) -> None:
        self._stream.close()
        super().close()


def shown_location(location: str) -> str:
    """A path, or a URL without user, password and query, as messages and stored facts show it."""
    return location if is_local(location) else without_secrets(location)


def _unreadable(location: str, error: Exception) -> NotFoundError | InputError:
    shown = shown_location(location)
    fault = "" if is_local(location) else _server_fault(error)
    if fault:
        return UnreachableError(f"{shown}: {fault}; check the address, or try again later")
    if is_local(location):
        check_is_of_content(error, location, OF_PERMISSION)
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return NotFoundError(f"{shown}: there is no such file")
    return InputError(f"{shown}: cannot be read ({str(error).replace(location, shown)})")


def _server_fault(error: BaseException) -> str:
    """Reason why a server did not give a file; empty if the file is not there."""
    # fsspec reports every failure as a missing file, with what really happened among its causes.
    found = ""
    cause: BaseException | None = error
    while cause is not None:
        status = getattr(cause, "status", None)
        if isinstance(status, int):
            return "" if status in _NOT_THERE else f"the server answers with status {status}"
        # The innermost error says it best.
        if isinstance(cause, ConnectionError | TimeoutError | socket.gaierror):
            number = cause.errno
            is_system = number is not None and number > 0
            reason = os.strerror(number or 0) if is_system else cause.strerror or type(cause).__name__
            found = f"the server cannot be reached ({reason})"
        cause = cause.__cause__ or cause.__context__
    return found
