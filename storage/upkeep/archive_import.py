"""Imports a dataset from an archive, which may be hostile: everything is checked, and appears at once or not at all."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import xxhash

from gnnloom.storage.catalog import Catalog, Dataset
from gnnloom.storage.errors import CorruptError, GnnloomError, InputError, NotFoundError
from gnnloom.storage.format.schema import check_version
from gnnloom.storage.meters import ProgressMeter
from gnnloom.storage.upkeep.archive import HEAD, TAIL
from gnnloom.storage.upkeep.arrival import LONGEST_NAME, check_space, checked_name, folder_aside, free_path, publish
from gnnloom.storage.wording import counted

#: Bytes that are copied at a time, and the longest head.
_BLOCK = 1 << 20
#: Bytes of an entry in the list of digests, apart from the name: the digest, quotes and separators.
_ENTRY_BYTES = 64
#: First bytes of compressed files.
_MAGIC = {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip"}
_PLAIN_TYPES = (tarfile.REGTYPE, tarfile.AREGTYPE)


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
    with folder_aside(catalog.root) as aside, file.open("rb") as raw:
        final = _read_archive(raw, file, aside, lambda head: free_path(catalog, str(file), head.get("dataset"), name))
        publish(aside, final, str(file), file.name)
    return catalog.dataset(final.name)


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
        is_name = self.type == tarfile.GNUTYPE_LONGNAME and 0 <= self.size <= LONGEST_NAME
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
        check_space(self._folder, head["bytes"], str(self._file))
        return head

    def _unpack(self, member: tarfile.TarInfo, head: dict[str, Any]) -> None:
        path = self._folder / checked_name(str(self._file), member.name)
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
