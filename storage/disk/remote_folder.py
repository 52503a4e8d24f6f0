"""Files below a URL, in any storage that fsspec supports: S3, Google Cloud Storage, Azure, servers, memory, folders.

Storages report failures in many ways. Every failure becomes an error of one line, without credentials.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, cast

from gnnloom.storage.errors import GnnloomError, InputError, MissingPackageError, NotFoundError
from gnnloom.storage.system_errors import check_is_of_content
from gnnloom.storage.wording import shortened

#: User and password in a URL.
_USER: Final = re.compile(r"(?<=//)[^/?]*@")
#: Names of variables of the environment that may hold a secret.
_SECRETS: Final = re.compile(r"SECRET|TOKEN|PASSW|CREDENTIAL|_KEY\b|_SAS\b|CONNECTION_STRING", re.IGNORECASE)
#: A setting of a variable in a shell script.
_SETTING: Final = re.compile(r"\b([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|\S+)")
#: Shortest secret that is removed from messages; shorter texts are words.
_SHORTEST_SECRET: Final = 6
#: Storages without folders, where making a folder would make a bucket.
_WITHOUT_FOLDERS: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "r2", "hf"})
#: Most characters of the reason of an error.
_MOST_REASON: Final = 300
#: Seconds after which a web server that sends nothing is given up.
SILENCE: Final = 60.0
_CONNECTING: Final = 30.0


class RemoteError(InputError):
    """A storage cannot be reached, or refuses."""


class RemoteFolder:
    """A folder behind a URL.

    Attributes:
        shown: the URL without user, password and query, for messages.
    """

    def __init__(self, url: str, silence: float = SILENCE) -> None:
        """Choose the storage; nothing is sent yet.

        Args:
            silence: seconds after which a web server that sends nothing is given up.

        Raises:
            InputError: the URL has an unknown protocol.
            MissingPackageError: the package for this protocol is not installed.
        """
        from fsspec.core import url_to_fs  # noqa: PLC0415 - only transfers need it

        self._url, self._silence = url, silence
        self.shown = without_secrets(url)
        try:
            self._files, path = url_to_fs(url.rstrip("/"))  # type: ignore[no-untyped-call]
        except ImportError as error:
            reason = f"{self.shown}: {self._reason(error)}; `pip install 'gnnloom[remote]'` installs s3fs for S3"
            raise MissingPackageError(reason) from None
        except Exception as error:  # noqa: BLE001 - every storage has errors of its own
            raise InputError(f"{self.shown}: this URL cannot be opened ({self._reason(error)})") from None
        self._path = str(path).rstrip("/")

    def sizes(self, folder: str) -> dict[str, int]:
        """Sizes in bytes of the files in a folder by name; none if there is no folder."""
        try:
            with self._speaking(folder):
                # Another process may have written since.
                self._files.invalidate_cache()
                found = self._files.ls(f"{self._path}/{folder}", detail=True)
        except NotFoundError:
            return {}
        return {each["name"].rstrip("/").rsplit("/", 1)[-1]: each["size"] or 0 for each in found}

    def read(self, name: str, most: int) -> bytes:
        """The bytes of a small file.

        Args:
            most: bytes that the file may have.

        Raises:
            NotFoundError: there is no such file.
            RemoteError: the storage cannot be reached, or refuses; or the file is larger.
        """
        found = b"".join(self.pieces(name, most + 1, most + 1))
        if len(found) > most:
            raise RemoteError(f"{self.shown}/{name}: more than {most:,} bytes, which no dataset has there")
        return found

    def pieces(self, name: str, size: int, piece: int) -> Iterator[bytes]:
        """The first bytes of a file, in pieces; a file that is shorter gives fewer bytes.

        A hostile storage may send without end: no more than ``size`` bytes are taken.

        Args:
            piece: largest number of bytes of a piece.

        Raises:
            NotFoundError: there is no such file.
            RemoteError: the storage cannot be reached, or refuses; or the name is a pipe or a device.
        """
        path, start = f"{self._path}/{name}", 0
        with self._speaking(name):
            if self._is("http", "https"):
                with open_response(self._files, path, self._silence) as response:
                    while start < size and (found := response.read(min(piece, size - start))):
                        yield found
                        start += len(found)
                return
            # A pipe would be waited for.
            if self._is("file") and self._files.info(path)["type"] != "file":
                raise RemoteError(f"{self.shown}/{name}: not a file")
            while start < size:
                asked = min(piece, size - start)
                found = self._files.cat_file(path, start=start, end=start + asked)
                # Some storages ignore ranges.
                yield found[:asked]
                start += asked
                if len(found) < asked:
                    return

    def make(self, folder: str) -> None:
        """Make a folder, if the storage writes files only into existing folders."""
        if not self._is(*_WITHOUT_FOLDERS):
            with self._speaking(folder):
                self._files.makedirs(f"{self._path}/{folder}", exist_ok=True)

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole, replacing it if it exists; raises as :meth:`read`."""
        with self._speaking(name):
            self._files.pipe_file(f"{self._path}/{name}", content)

    def write_pieces(self, name: str, pieces: Iterable[bytes]) -> None:
        """Write a file piece by piece; raises as :meth:`read`, and what ``pieces`` raises."""
        with self._speaking(name), self._files.open(f"{self._path}/{name}", "wb") as file:
            for piece in pieces:
                file.write(piece)

    def remove(self, name: str) -> None:
        """Remove a file; raises as :meth:`read`."""
        with self._speaking(name):
            self._files.rm_file(f"{self._path}/{name}")

    def publish(self, name: str, content: bytes) -> None:
        """Write a file that appears whole or not at all; raises as :meth:`read`."""
        with self._speaking(name), self._files.transaction, self._files.open(f"{self._path}/{name}", "wb") as file:
            file.write(content)

    def _is(self, *protocols: str) -> bool:
        """Whether the storage has one of some protocols."""
        known = self._files.protocol
        return not set(protocols).isdisjoint([known] if isinstance(known, str) else known)

    @contextmanager
    def _speaking(self, name: str) -> Iterator[None]:
        """Report an error of the storage in one line."""
        try:
            yield
        except GnnloomError:
            raise
        except FileNotFoundError:
            raise NotFoundError(f"{self.shown}/{name}: there is no such file, folder or bucket") from None
        except Exception as error:  # noqa: BLE001 - every storage has errors of its own
            if self._is("file"):
                # Of this machine's disk.
                check_is_of_content(error, f"{self.shown}/{name}")
            raise RemoteError(
                f"{self.shown}/{name}: {self._reason(error)}; check the URL and the credentials, and run the command"
                f" again: it continues"
            ) from None

    def _reason(self, error: BaseException) -> str:
        """The type of an error and its first line, without anything secret."""
        text = (str(error).strip().splitlines() or [""])[0]
        for secret in sorted(_secrets(self._url), key=len, reverse=True):
            text = text.replace(secret, "***")
        kind = type(error).__name__
        return shortened(f"{kind}: {text}" if text else kind, _MOST_REASON)


def open_response(files: Any, url: str, silence: float = SILENCE) -> BinaryIO:
    """Open a file of a web server as one response that is read from its start, which any server supports.

    The response may take any time, as large files do, but not be silent for long.

    Args:
        files: the file system of fsspec.
        silence: seconds after which a server that sends nothing is given up.
    """
    from aiohttp import ClientTimeout  # noqa: PLC0415 - only web servers need it

    limits = ClientTimeout(total=None, sock_connect=_CONNECTING, sock_read=silence)
    # With a block size of 0, fsspec streams the response; with any size, it does not ask for the size first.
    return cast("BinaryIO", files.open(url, "rb", block_size=0, size=1, timeout=limits))


def without_secrets(url: str) -> str:
    """A URL without user, password and query, as messages and results show it."""
    return _USER.sub("", url).partition("?")[0].rstrip("/")


def masked_settings(line: str) -> str:
    """A line of a shell script without the values of variables that may hold a secret.

    >>> masked_settings("export WANDB_API_KEY=abc OMP_NUM_THREADS=4")
    'export WANDB_API_KEY=*** OMP_NUM_THREADS=4'
    """
    return _SETTING.sub(lambda found: f"{found[1]}=***" if _SECRETS.search(found[1]) else found[0], line)


def _secrets(url: str) -> set[str]:
    """Texts that must not be shown: user, password and query of a URL, and secrets of the environment."""
    users = {part for found in _USER.findall(url) for part in (found, *found[:-1].split(":"))}
    queries = set(re.split(r"[&;?]", url.partition("?")[2]))
    values = {value for each in queries for value in (each, each.partition("=")[2])}
    set_here: dict[str, Any] = {name: value for name, value in os.environ.items() if _SECRETS.search(name)}
    return {each for each in users | values | set(set_here.values()) if len(each) >= _SHORTEST_SECRET}
