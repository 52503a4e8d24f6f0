"""Imports a dataset from an archive, which may be hostile: everything is checked, and appears at once or not at all."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import tarfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import xxhash

from gnnloom.storage.catalog import Catalog, Dataset, check_name
from gnnloom.storage.checks.verify import verify_dataset
from gnnloom.storage.disk.files import sync_folder, sync_tree
from gnnloom.storage.errors import (
    BudgetError,
    CorruptError,
    ExistsError,
    GnnloomError,
    InputError,
    NotFoundError,
)
from gnnloom.storage.format.schema import SCHEMAS, check_version
from gnnloom.storage.meters import ProgressMeter
from gnnloom.storage.system_errors import check_is_of_content
from gnnloom.storage.upkeep.archive import HEAD, TAIL
from gnnloom.storage.upkeep.garbage import refresh_lists
from gnnloom.storage.wording import counted

#: Bytes that are copied at a time, and the longest head.
_BLOCK = 1 << 20
#: Bytes of an entry in the list of digests, apart from the name: the digest, quotes and separators.
_ENTRY_BYTES = 64
#: The longest name of a member; names in a dataset are far shorter, and tarfile reads a long name into memory.
_LONGEST_NAME = 1024
#: First bytes of compressed files.
_MAGIC = {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip"}
#: First components of the names in an archive; hidden folders, such as locks', are not included.
_TOP = frozenset({*SCHEMAS, "runs", "zarr.json"})
_PLAIN_TYPES = (tarfile.REGTYPE, tarfile.AREGTYPE)
#: Bytes of disk space that an import leaves free.
_RESERVE = 64 << 20


def import_dataset(catalog: Catalog, file: Path, name: str | None = None) -> Dataset:
    """Import an archive that :func:`gnnloom.storage.upkeep.archive.export_dataset` wrote into a catalog.

    Args:
        name: name of the new dataset; by default the name that it had.

    Raises:
        NotFoundError: there is no such file.
        InputError: the file is not such an archive, is cut short, or holds anything that such an archive does not.
        FormatError: the archive is of a newer format.
        CorruptError: a digest is wrong, or the dataset in the archive is damaged.
        ExistsError: the catalog has a dataset of this name.
        BudgetError: the disk has too little space.
    """
    if not file.is_file():
        raise NotFoundError(f"{file}: there is no such file")
    catalog.root.mkdir(parents=True, exist_ok=True)
    with _folder_aside(catalog.root) as aside, file.open("rb") as raw:
        final = _read_archive(raw, file, aside, lambda head: _free_path(catalog, file, head, name))
        _check_contents(file, aside)
        # Unpacked, checked and synced before the rename, which makes everything visible at once. A kill before it
        # leaves a hidden folder that nobody locks, which garbage collection removes.
        sync_tree(aside)
        try:
            aside.rename(final)
        except OSError as error:
            check_is_of_content(error, final, {errno.ENOTEMPTY})
            raise ExistsError(f"{final}: {error.strerror}; give another name with --as") from error
        sync_folder(catalog.root)
    return catalog.dataset(final.name)


def _free_path(catalog: Catalog, file: Path, head: Mapping[str, Any], name: str | None) -> Path:
    """Path of the new dataset, which must not exist."""
    chosen = check_name(str(head.get("dataset")), f"{file}: dataset") if name is None else check_name(name)
    final = catalog.root / chosen
    if os.path.lexists(final):
        raise ExistsError(f"{final}: a dataset of this name exists already; give another name with --as")
    return final


@contextmanager
def _folder_aside(root: Path) -> Iterator[Path]:
    """A new folder, locked so that garbage collection keeps away; deleted at the end unless it was renamed."""
    # Inside the catalog, because a rename is atomic only within one file system; hidden, so that the catalog does not
    # list it.
    aside, descriptor = _locked_folder(root)
    try:
        yield aside
    finally:
        os.close(descriptor)
        # After a successful import the folder has its final name, and this finds nothing.
        shutil.rmtree(aside, ignore_errors=True)


def _locked_folder(root: Path) -> tuple[Path, int]:
    """Make a folder and lock it; returns it and the descriptor of the lock."""
    while True:
        aside = root / f".importing-{uuid.uuid4().hex}"
        aside.mkdir()
        # Until it is locked, garbage collection may take the folder for one that was left behind.
        try:
            descriptor = os.open(aside, os.O_RDONLY)
        except FileNotFoundError:
            continue
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if aside.exists():
            return aside, descriptor
        os.close(descriptor)


def _read_archive(raw: IO[bytes], file: Path, folder: Path, choose: Callable[[dict[str, Any]], Path]) -> Path:
    """Unpack into an empty folder, unless ``choose`` refuses the archive's head; returns the path that it chooses."""
    try:
        # A stream is read once, from front to back, so a hostile archive cannot make the reader seek or loop. UTF-8,
        # not the encoding of the locale.
        with tarfile.open(fileobj=_decompressed(raw), mode="r|", tarinfo=_PlainMember, encoding="utf-8") as tar:
            return _Unpacker(file, folder, tar).run(choose)
    except GnnloomError:
        raise
    except (tarfile.TarError, pa.ArrowException, OSError, EOFError, RecursionError, UnicodeError) as error:
        # Errors of the disk (no space, no permission) have an errno and are not the archive's fault.
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, pa.ArrowException):
            raise
        raise InputError(f"{file}: not an archive of a dataset, or damaged or cut short ({error})") from error


def _decompressed(raw: IO[bytes]) -> Any:
    """The bytes of the tar archive; the first bytes, not the file name, decide the compression."""
    first = raw.read(4)
    raw.seek(0)
    for magic, compression in _MAGIC.items():
        if first.startswith(magic):
            return pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), compression)
    return raw


class _PlainMember(tarfile.TarInfo):
    """A member that is a regular file.

    Extended headers, which tarfile would read into memory at any size, and everything that is not a file are refused
    before they are parsed.
    """

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        # tarfile calls this private method with a parsed header, before it acts on the type; there is no public hook as
        # early.
        is_name = self.type == tarfile.GNUTYPE_LONGNAME and 0 <= self.size <= _LONGEST_NAME
        if not is_name and (self.type not in _PLAIN_TYPES or self.size < 0):
            raise InputError(
                f"{getattr(tar, 'name', None) or 'the archive'}: member {self.name!r} is not a regular file"
                f" (type {self.type!r}); archives of datasets hold nothing else"
            )
        member: tarfile.TarInfo = super()._proc_member(tar)  # type: ignore[misc]
        return member


class _Unpacker:
    """Unpacks the members one by one: the head, the files of the dataset, the tail."""

    def __init__(self, file: Path, folder: Path, tar: tarfile.TarFile) -> None:
        self._file, self._folder, self._tar = file, folder, tar
        self._digests: dict[str, str] = {}
        self._written = 0

    def run(self, choose: Callable[[dict[str, Any]], Path]) -> Path:
        """Unpack everything, unless ``choose`` refuses the head; returns the path that it chooses."""
        members = iter(self._tar)
        head = self._check_head(next(members, None))
        final, meter = choose(head), ProgressMeter("import", head["files"], "bytes")
        for member in members:
            if member.name == TAIL:
                self._check_tail(member, head)
                return final
            self._unpack(member, head)
            meter.advance(member.size)
        raise InputError(f"{self._file}: cut short after {len(self._digests)} of {counted(head['files'], 'file')}")

    def _check_head(self, member: tarfile.TarInfo | None) -> dict[str, Any]:
        if member is None or member.name != HEAD:
            raise InputError(f"{self._file}: not an archive of a dataset (it does not begin with {HEAD})")
        head = self._read_json(member, _BLOCK)
        check_version(self._file, head)
        if not all(isinstance(head.get(name), int) for name in ("files", "bytes")):
            raise InputError(f"{self._file}: not an archive of a dataset ({HEAD} lacks files or bytes)")
        # Refused before anything is written. The head can lie, so ``_unpack`` also counts what is written.
        free = shutil.disk_usage(self._folder).free - _RESERVE
        if head["bytes"] > free:
            raise BudgetError(f"{self._file}: unpacks to {head['bytes']:,} bytes, the disk has {max(0, free):,} free")
        return head

    def _unpack(self, member: tarfile.TarInfo, head: dict[str, Any]) -> None:
        path = self._folder / self._checked_name(member.name)
        # Bounds the disk space: compression lets a small archive unpack to any size.
        if self._written + member.size > head["bytes"] or len(self._digests) >= head["files"]:
            raise InputError(
                f"{self._file}: with {member.name} of {member.size:,} bytes it is larger than the {head['files']} files"
                f" and {head['bytes']:,} bytes that it announces"
            )
        state, left = xxhash.xxh3_128(), member.size
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Exclusive creation: a second member of the same name would replace the content that was hashed.
            with path.open("xb") as out, self._open(member) as source:
                while left:
                    # In blocks, so that memory does not grow with the size of a member.
                    block = source.read(min(_BLOCK, left))
                    if not block:
                        raise InputError(f"{self._file}: cut short within {member.name}")
                    out.write(block)
                    state.update(block)
                    left -= len(block)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise InputError(f"{self._file}: {member.name} has the name of another file or folder") from error
        self._written += member.size
        self._digests[member.name] = state.hexdigest()

    def _checked_name(self, name: str) -> str:
        components = name.split("/")
        # No component may start with a dot: this rules out ``..``, hidden files and, with empty components, absolute
        # paths.
        is_plain = len(name) <= _LONGEST_NAME and name.isascii() and name.isprintable() and "\\" not in name
        if not is_plain or any(not each or each.startswith(".") or len(each) > 255 for each in components):
            raise InputError(f"{self._file}: member name {name[:200]!r} is not a plain name in a dataset")
        if components[0] not in _TOP:
            raise InputError(f"{self._file}: member {name!r} is not part of a dataset")
        return name

    def _check_tail(self, member: tarfile.TarInfo, head: dict[str, Any]) -> None:
        # No longer than what it lists: the text is held in memory, and compressed text can be of any length.
        most = _BLOCK + sum(len(name) + _ENTRY_BYTES for name in self._digests)
        digests = self._read_json(member, most).get("digests")
        if not isinstance(digests, dict) or len(digests) != head["files"]:
            raise InputError(f"{self._file}: {TAIL} does not list the {head['files']} files")
        # Both directions: a file that is listed and absent, and a file that is present and not listed.
        missing = sorted(digests.keys() - self._digests.keys())
        if missing:
            raise InputError(f"{self._file}: lacks {counted(len(missing), 'file')}, the first is {missing[0]}")
        wrong = sorted(name for name, digest in self._digests.items() if digests.get(name) != digest)
        if wrong:
            raise CorruptError(f"{self._file}: {wrong[0]} differs from what was exported (its digest is wrong)")

    def _read_json(self, member: tarfile.TarInfo, most: int) -> dict[str, Any]:
        if member.size > most:
            raise InputError(f"{self._file}: {member.name} has {member.size:,} bytes, at most {most:,} are allowed")
        try:
            content = json.loads(self._open(member).read())
        except (ValueError, RecursionError) as error:
            raise InputError(f"{self._file}: {member.name} is not valid JSON ({error})") from error
        if not isinstance(content, dict):
            raise InputError(f"{self._file}: {member.name} is not a JSON object")
        return content

    def _open(self, member: tarfile.TarInfo) -> IO[bytes]:
        source = self._tar.extractfile(member)
        if source is None:
            raise InputError(f"{self._file}: {member.name} is not a regular file")
        return source


def _check_contents(file: Path, folder: Path) -> None:
    """Check the digests of everything: a well-formed archive can hold a damaged dataset."""
    try:
        dataset = Dataset(folder)
        # A process that was killed may not have listed what it made, and a run can go on while it is exported.
        refresh_lists(dataset)
        problems = [finding.problem for finding in verify_dataset(dataset, quick=True) if finding.problem]
    except GnnloomError as error:
        problems = [str(error)]
    if problems:
        # The temporary folder is gone by the time anybody reads this, so the message names the archive.
        raise CorruptError(f"{file}: holds a damaged dataset: {problems[0].replace(f'{folder}', file.name)}")
