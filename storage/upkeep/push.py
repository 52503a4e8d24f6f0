"""Pushes a dataset to a URL: the content of each file under its digest, and last the list of all files.

    URL/objects/DIGEST          the bytes of files with this xxh3-128 digest
    URL/gnnloom-dataset.json    name and size of the dataset, and digest and size of every file by name

The list goes last and appears whole, so a push that was stopped anywhere publishes nothing. A repeated push finds the
objects that are there already by their names and sizes, and does not send them again. Objects are never removed: a pull
that began before a push finds all of its files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock
from typing import Any, Final, TypeVar

import xxhash

from gnnloom.storage.catalog import Dataset
from gnnloom.storage.disk.files import json_text, parse_json
from gnnloom.storage.disk.remote_folder import SILENCE, RemoteFolder
from gnnloom.storage.disk.seal import open_object, seal_object
from gnnloom.storage.errors import CorruptError, ExistsError, InputError, NotFoundError
from gnnloom.storage.faults import fault_point
from gnnloom.storage.format.schema import FORMAT_VERSION, VERSION_ENTRY, check_version
from gnnloom.storage.meters import ProgressMeter
from gnnloom.storage.system_errors import naming
from gnnloom.storage.upkeep.archive import files_of, refuse_damage

LIST: Final = "gnnloom-dataset.json"
OBJECTS: Final = "objects"
#: Bytes of the longest list, which a pull holds in memory: of about two million files.
LONGEST_LIST: Final = 256 << 20
_DIGEST: Final = re.compile(r"[0-9a-f]{32}")

Item = TypeVar("Item")


@dataclass(frozen=True)
class TransferSizes:
    """Limits of one transfer: files at the same time, bytes in memory, and waiting.

    Attributes:
        at_once: number of files.
        piece: bytes of a file that are in memory; larger files are sent and read in pieces.
        longest_list: bytes of the longest list.
        silence: seconds after which a web server that sends nothing is given up.
    """

    at_once: int = 8
    piece: int = 8 << 20
    longest_list: int = LONGEST_LIST
    silence: float = SILENCE


@dataclass(frozen=True)
class PushedFile:
    """A file of a pushed dataset."""

    digest: str
    bytes: int


@dataclass(frozen=True)
class FileList:
    """The list of a pushed dataset."""

    dataset: str
    files: dict[str, PushedFile]

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return sum(each.bytes for each in self.files.values())

    @classmethod
    def read(cls, remote: RemoteFolder, longest: int = LONGEST_LIST) -> FileList:
        """Read the list of the dataset at a URL.

        Args:
            longest: bytes that it may have.

        Raises:
            NotFoundError: there is no dataset, or its push has not finished.
            CorruptError: the list is damaged, or not one.
            FormatError: the dataset has a newer format.
        """
        where = f"{remote.shown}/{LIST}"
        try:
            raw = remote.read(LIST, longest)
        except NotFoundError:
            raise NotFoundError(
                f"{remote.shown}: there is no dataset here; if a push to this URL was stopped, repeat it"
            ) from None
        content = open_object(raw, parse_json(raw, where), where)
        check_version(Path(where), content)
        files, name = content.get("files"), content.get("dataset")
        if not isinstance(files, dict) or not isinstance(name, str):
            raise CorruptError(f"{where}: not the list of a dataset")
        return cls(name, {file: _pushed_file(where, file, entry) for file, entry in files.items()})

    def to_bytes(self) -> bytes:
        """The list as it is stored, with a checksum."""
        files = {name: [each.digest, each.bytes] for name, each in self.files.items()}
        content = {VERSION_ENTRY: FORMAT_VERSION, "dataset": self.dataset, "bytes": self.total, "files": files}
        return seal_object(json_text(content).removesuffix("\n"))


def _pushed_file(where: str, name: str, entry: Any) -> PushedFile:
    match entry:
        case [str(digest), int(size)] if _DIGEST.fullmatch(digest) and size >= 0:
            return PushedFile(digest, size)
    raise CorruptError(f"{where}: the entry of {name[:200]!r} is not a digest and a size")


def push_dataset(
    dataset: Dataset, url: str, *, replace: bool = False, sizes: TransferSizes | None = None
) -> dict[str, Any]:
    """Copy the complete artifacts and the runs of a dataset to a URL, which has the dataset when all of it is there.

    Unfinished artifacts are left out. A run may continue meanwhile; its metrics are copied up to this moment.

    Args:
        url: a folder of its own, in any storage that fsspec supports.
        replace: replace a dataset at the URL that has artifacts or runs which this one lacks.
        sizes: files at once, and bytes of each in memory.

    Returns:
        ``files`` and ``bytes`` of the dataset, and how many of both were ``sent``; see the keys below.

    Raises:
        InputError: the URL cannot be used, the storage refuses, or a file changed meanwhile.
        ExistsError: the URL has another dataset, or artifacts or runs that this dataset lacks.
        CorruptError: something in the dataset is damaged.
        MissingPackageError: the package for this kind of URL is not installed.
    """
    sizes, remote = sizes or TransferSizes(), RemoteFolder(url)
    refuse_damage(dataset)
    # Sizes are taken once: a file of metrics that grows meanwhile is cut at this size.
    members = [(path, path.relative_to(dataset.path).as_posix(), path.stat().st_size) for path in files_of(dataset)]
    _refuse_to_lose(dataset, [name for _, name, _ in members], remote, replace=replace)
    there = remote.sizes(OBJECTS)
    remote.make(OBJECTS)
    files, sent, lock = dict[str, PushedFile](), dict[str, int](), Lock()
    meter = ProgressMeter("push", len(members), "bytes")

    def push(member: tuple[Path, str, int]) -> None:
        path, name, size = member
        digest = _push_file(path, size, sizes.piece, remote, there)
        with lock:
            files[name] = PushedFile(digest.text, size)
            if digest.was_sent:
                sent[digest.text] = size
            meter.advance(size)

    each_at_once(members, push, sizes.at_once)
    fault_point("push.publish")
    done = FileList(dataset.name, files)
    remote.publish(LIST, done.to_bytes())
    return {"files": len(files), "bytes": done.total, "files_sent": len(sent), "bytes_sent": sum(sent.values())}


def _refuse_to_lose(dataset: Dataset, names: Iterable[str], remote: RemoteFolder, *, replace: bool) -> None:
    """Refuse to replace the list of a dataset that has more than this one, or another name."""
    try:
        there = FileList.read(remote)
    except (NotFoundError, CorruptError):
        return
    if there.dataset != dataset.name:
        raise ExistsError(f"{remote.shown}: this is dataset {there.dataset}; push {dataset.name} to another URL")
    lost = sorted(_owners(there.files) - _owners(names))
    if lost and not replace:
        raise ExistsError(
            f"{remote.shown}: the dataset there has {lost[0]}, which {dataset.path} lacks; push to another URL, or"
            f" replace it with --replace"
        )


def _owners(names: Iterable[str]) -> set[str]:
    """The artifacts and runs of files, as KIND/KEY."""
    return {"/".join(name.split("/")[:2]) for name in names if name.count("/") > 1}


@dataclass(frozen=True)
class _Pushed:
    text: str
    was_sent: bool


def _push_file(path: Path, size: int, piece: int, remote: RemoteFolder, there: dict[str, int]) -> _Pushed:
    """Send a file unless an object with its digest and size is there."""
    state, content = xxhash.xxh3_128(), b""
    for content in _pieces(path, size, piece):
        state.update(content)
    digest = state.hexdigest()
    if there.get(digest) == size:
        return _Pushed(digest, was_sent=False)
    fault_point("push.send", path)
    stored = f"{OBJECTS}/{digest}"
    if size <= piece:
        remote.write(stored, content)
        return _Pushed(digest, was_sent=True)
    again = xxhash.xxh3_128()

    def pieces() -> Iterator[bytes]:
        for each in _pieces(path, size, piece):
            again.update(each)
            yield each

    # Read once for the digest, and once to be sent.
    remote.write_pieces(stored, pieces())
    if again.hexdigest() != digest:
        remote.remove(stored)
        raise InputError(f"{path}: changed during the push; try again")
    return _Pushed(digest, was_sent=True)


def _pieces(path: Path, size: int, piece: int) -> Iterator[bytes]:
    """The first bytes of a file, some at a time."""
    with naming(path), path.open("rb") as file:
        for start in range(0, size, piece):
            content = file.read(min(piece, size - start))
            if len(content) < min(piece, size - start):
                raise InputError(f"{path}: changed during the push; try again")
            yield content


def each_at_once(items: Iterable[Item], work: Callable[[Item], None], at_once: int) -> None:
    """Work on several items at the same time, in threads; the first error stops all work."""
    source, lock, is_over = iter(items), Lock(), Event()

    def take() -> Iterator[Item]:
        while not is_over.is_set():
            with lock:
                item = next(source, None)
            if item is None:
                return
            yield item

    def run() -> None:
        for item in take():
            work(item)

    with ThreadPoolExecutor(at_once) as pool:
        try:
            for future in as_completed([pool.submit(run) for _ in range(at_once)]):
                future.result()
        finally:
            is_over.set()
