"""Uncompressed copies of an artifact's arrays, which all processes of a node map and share in memory.

Compressed chunks cannot be read at random. For random access the arrays are copied once to plain ``.npy`` files, in
``DATASET/.mapped/KIND-KEY``, and mapped. The page cache holds each file once, for any number of processes. A copy is a
cache: it can be made again from the artifact at any time.

* A process that uses a copy holds its lock, shared, for as long as it holds any of the arrays.
* The first process that opens a copy makes it, under a second lock; the others wait. It appears whole, by a rename.
* The first process of each node compares the copy with the checksums next to it (see
  :mod:`gnnloom.storage.disk.copy_checksums`), and its values with the rules of its arrays, again if a file has changed
  since. A damaged copy is made again.
* ``gnnloom catalog gc`` removes copies that no process uses; ``gnnloom catalog verify`` compares copies with their
  artifacts.
"""

from __future__ import annotations

import io
import logging
import math
import os
import shutil
import uuid
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.disk.copy_checksums import (
    ChecksumFile,
    check_files,
    identities,
    is_checked,
    is_own_file,
    note_checked,
    write_checksums,
)
from gnnloom.storage.disk.files import MAPPED, read_json, sync_folder, sync_tree
from gnnloom.storage.disk.locks import lock_path, locked, share
from gnnloom.storage.disk.mapped_rows import fit_in_pages, read_single_pages
from gnnloom.storage.disk.numpy_files import load_array
from gnnloom.storage.disk.value_rules import Rule, ValueCheck
from gnnloom.storage.errors import BudgetError, CorruptError, InputError
from gnnloom.storage.format.arrays import ArrayReader
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.system_errors import OF_PERMISSION, check_is_of_content
from gnnloom.storage.wording import counted

#: Kinds of the locks of a copy: for its users, and for the process that checks or makes it.
_LOCK_KIND: Final = "mapped"
_CHECK_KIND: Final = "mapped-check"
LOGGER = logging.getLogger("gnnloom.storage")


@dataclass(frozen=True)
class ArrayContent:
    """One array of a copy.

    Attributes:
        rule: what its values must be, because kernels use them as positions; None for any values.
        chunks: yields consecutive ranges of its rows.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rule: Rule | None
    chunks: Callable[[], Iterator[NDArray[Any]]]

    @classmethod
    def of(cls, reader: ArrayReader) -> ArrayContent:
        """A stored array as it is."""
        return cls(reader.shape, reader.dtype, reader.rule, reader.chunks)

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def checked(self, where: str) -> Iterator[NDArray[Any]]:
        """The ranges of rows, each checked before it is given out.

        Args:
            where: the artifact and the array, for messages.

        Raises:
            CorruptError: the values break the rule, or there are too few or too many.
        """
        check, num_rows = ValueCheck(where, self.rule, "remove the artifact and make it again"), 0
        for chunk in self.chunks():
            check.add(chunk)
            num_rows += len(chunk)
            yield chunk
        check.end()
        if num_rows != self.shape[0]:
            raise CorruptError(f"{where}: {counted(num_rows, 'row')}, the manifest says {self.shape[0]}")

    def read(self, where: str) -> NDArray[Any]:
        """The whole array in memory; for the argument and errors see :meth:`checked`."""
        return np.concatenate([np.empty((0, *self.shape[1:]), self.dtype), *self.checked(where)])


class _FileCheck:
    """Checks the file of an array: its header, its length, and its values."""

    def __init__(self, path: Path, content: ArrayContent) -> None:
        self._path, self._content, self._header = path, content, _header(content)
        self._values, self._position = ValueCheck(str(path), content.rule), 0

    def add(self, block: NDArray[np.uint8]) -> None:
        header = self._header[self._position : self._position + len(block)]
        if block[: len(header)].tobytes() != header:
            raise CorruptError(f"{self._path}: not {self._content.dtype} of shape {self._content.shape}")
        values = block[len(header) :]
        if self._content.rule is not None and len(values) % self._content.dtype.itemsize == 0:
            self._values.add(values.view(self._content.dtype.newbyteorder("<")))
        self._position += len(block)

    def end(self) -> None:
        if self._position != len(self._header) + self._content.num_bytes:
            raise CorruptError(f"{self._path}: not {self._content.dtype} of shape {self._content.shape}")
        self._values.end()


Contents = Mapping[str, ArrayContent]


def open_copy(artifact: Artifact, contents: Contents, wanted: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """Map the copy of an artifact's arrays; make it first if there is none.

    Args:
        contents: name to content of each array.
        wanted: names of the arrays to map, at least one; by default all.

    Returns:
        The wanted arrays by name, read-only.

    Raises:
        BudgetError: the disk has no room for the copy.
        InputError: the folder of the dataset cannot be written.
        CorruptError: the copy is not one of this artifact.
    """
    path = copy_path(artifact)
    try:
        descriptor = _use_copy(path, contents)
    except OSError as error:
        check_is_of_content(error, path, OF_PERMISSION)
        raise InputError(
            f"{path}: cannot make the uncompressed copy for random access ({error.strerror}); make the folder"
            " writable, or ask a user with write access to run the same command once"
        ) from error
    try:
        names = contents if wanted is None else wanted
        arrays = {name: _map(path / f"{name}.npy", contents[name]) for name in names}
        # Reading ahead loads small arrays faster, but in large ones it evicts pages that are still needed.
        read_single_pages([array for array in arrays.values() if not fit_in_pages([array])])
    except BaseException:
        os.close(descriptor)
        raise
    _close_after(descriptor, list(arrays.values()))
    return {name: np.asarray(array) for name, array in arrays.items()}


def copy_path(artifact: Artifact) -> Path:
    """Folder of the copy of an artifact, whether or not it exists."""
    return artifact.path.parents[1] / MAPPED / f"{artifact.kind}-{artifact.key}"


def artifact_path(path: Path) -> Path:
    """Folder of the artifact of a copy, whether or not it exists."""
    kind, _, key = path.name.partition("-")
    return path.parents[1] / kind / key


def copy_lock(path: Path) -> Path:
    """The lock of the copy in this folder."""
    return lock_path(path.parents[1], _LOCK_KIND, path.name)


def copies(dataset: Path) -> list[Path]:
    """Folders of all complete copies in a dataset."""
    return sorted(path for path in (dataset / MAPPED).glob("[!.]*") if path.is_dir())


def verify_copy(path: Path, contents: Contents) -> int:
    """Compare a copy with its artifact, byte by byte.

    Returns:
        The number of arrays.

    Raises:
        CorruptError: a byte differs, or a checksum; the message names the file.
    """
    for name, content in contents.items():
        _verify_file(path / f"{name}.npy", content)
    for file in sorted(path.iterdir()):
        if is_own_file(file.name):
            # Compares the file with the checksum that it begins with.
            read_json(file)
    check_files(path, _checks(path, contents))
    return len(contents)


def _use_copy(path: Path, contents: Contents) -> int:
    """Lock a copy, shared, so that it stays; make it if there is none. Return the descriptor of the lock."""
    try:
        # Waits while garbage collection removes the copy.
        descriptor = share(copy_lock(path))
    except OSError as error:
        check_is_of_content(error, path, OF_PERMISSION)
        # A catalog that cannot be written: nobody can remove the copy, so it needs no lock.
        if not _is_whole(path, contents):
            raise
        _check_unwritable(path, contents)
        return os.open(path, os.O_RDONLY)
    try:
        if not is_checked(path, _files(contents)):
            # One process of all nodes checks or makes the copy; the others wait, and then look at the result on their
            # own node.
            with locked(path.parents[1], _CHECK_KIND, path.name, common=f"the uncompressed copy of {path.name}"):
                _check_or_make(path, contents)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _files(contents: Contents) -> list[str]:
    return [f"{name}.npy" for name in contents]


def _checks(path: Path, contents: Contents) -> dict[str, _FileCheck]:
    return {f"{name}.npy": _FileCheck(path / f"{name}.npy", content) for name, content in contents.items()}


def _is_whole(path: Path, contents: Contents) -> bool:
    """Whether a copy has the files of all arrays."""
    return path.is_dir() and all((path / name).is_file() for name in _files(contents))


def _check_or_make(path: Path, contents: Contents) -> None:
    names = _files(contents)
    if is_checked(path, names):
        return
    if path.is_dir():
        found = identities(path, names)
        try:
            check_files(path, _checks(path, contents))
        except CorruptError as error:
            LOGGER.warning("%s; the copy is made again from the artifact", error)
        else:
            note_checked(path, found)
            return
    path.parent.mkdir(exist_ok=True)
    _write_copy(path, contents)
    note_checked(path, identities(path, names))


def _check_unwritable(path: Path, contents: Contents) -> None:
    """Check a copy in a folder that cannot be written, so the copy can be neither marked as checked nor made again."""
    names = _files(contents)
    if is_checked(path, names):
        return
    try:
        check_files(path, _checks(path, contents))
    except CorruptError as error:
        raise CorruptError(
            f"{error}; the catalog cannot be written, so the copy cannot be made again: ask a user with write access"
            f" to remove {path}, or to run the same command"
        ) from error


def _write_copy(path: Path, contents: Contents) -> None:
    # First, because the disk may lack room for two copies. Processes that have mapped the damaged files keep them.
    _remove_damaged(path)
    needed = sum(content.num_bytes for content in contents.values())
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        raise BudgetError(f"{path}: the uncompressed copy for random access takes {needed:,} bytes, {free:,} are free")
    # A kill leaves a hidden folder, which garbage collection removes.
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    aside.mkdir()
    try:
        written = {
            f"{name}.npy": _write_file(aside / f"{name}.npy", content, f"{artifact_path(path)}: {name}")
            for name, content in contents.items()
        }
        write_checksums(aside, written)
        sync_tree(aside)
        aside.rename(path)
        sync_folder(path.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _write_file(path: Path, content: ArrayContent, where: str) -> dict[str, Any]:
    """Write one array; returns its checksums."""
    with ChecksumFile(path) as file:
        file.write(_header(content))
        for chunk in content.checked(where):
            file.write(_bytes_of(chunk, content))
        return file.content()


def _remove_damaged(path: Path) -> None:
    """Remove a copy that is damaged, under a hidden name first: nobody sees half of it."""
    if path.is_dir():
        hidden = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        path.rename(hidden)
        shutil.rmtree(hidden)


def _header(content: ArrayContent) -> bytes:
    """The bytes before the data in a ``.npy`` file."""
    file = io.BytesIO()
    described = {"descr": content.dtype.newbyteorder("<").str, "fortran_order": False, "shape": content.shape}
    np.lib.format.write_array_header_1_0(file, described)
    return file.getvalue()


def _bytes_of(chunk: NDArray[Any], content: ArrayContent) -> memoryview:
    plain = np.ascontiguousarray(chunk, content.dtype.newbyteorder("<"))
    return plain.reshape(-1).view(np.uint8).data


def _map(path: Path, content: ArrayContent) -> np.memmap[Any, Any]:
    try:
        array = cast("np.memmap[Any, Any]", load_array(path, mmap_mode="r"))
    except (OSError, ValueError) as error:
        check_is_of_content(error, path)
        raise CorruptError(f"{path}: damaged copy ({error}); remove the folder") from error
    if (array.shape, array.dtype) != (content.shape, content.dtype):
        raise CorruptError(
            f"{path}: expected {content.dtype} of shape {content.shape}, found {array.dtype} of shape {array.shape};"
            " remove the folder"
        )
    return array


def _verify_file(path: Path, content: ArrayContent) -> None:
    try:
        with path.open("rb") as file:
            _compare(file.read(len(_header(content))), _header(content), path, "header")
            for chunk in content.chunks():
                wanted = _bytes_of(chunk, content)
                _compare(file.read(len(wanted)), wanted, path, "data")
            _compare(file.read(1), b"", path, "length")
    except OSError as error:
        check_is_of_content(error, path)
        raise CorruptError(f"{path}: the copy cannot be read ({error.strerror})") from error


def _compare(found: bytes, wanted: bytes | memoryview, path: Path, what: str) -> None:
    if found != wanted:
        raise CorruptError(f"{path}: the {what} differs from the artifact; remove the folder, the copy is made again")


def _close_after(descriptor: int, arrays: list[np.memmap[Any, Any]]) -> None:
    """Close the file of a lock when the last array is gone."""
    left = len(arrays)

    def count_down() -> None:
        nonlocal left
        left -= 1
        if not left:
            os.close(descriptor)

    for array in arrays:
        weakref.finalize(array, count_down)
