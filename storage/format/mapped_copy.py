"""Uncompressed copies of an artifact's arrays, which all processes of a node map: one copy of them in its memory.

Compressed chunks cannot be read at random. For random access the arrays are copied once to plain ``.npy`` files, in
``DATASET/.mapped/KIND-KEY``, and mapped. The page cache holds them once, whatever the number of processes. A copy is a
cache: it can be made again from the artifact at any time.

* The first process that opens a copy makes it, under the exclusive lock of the copy; the others wait. It appears whole,
  by a rename.
* A process that uses a copy holds its lock, shared, for as long as it holds any of the arrays.
* ``gnnloom catalog gc`` removes copies that no process uses; ``gnnloom catalog verify`` compares copies with their
  artifacts.
"""

from __future__ import annotations

import io
import math
import mmap
import os
import shutil
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.errors import BudgetError, CorruptError, InputError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.files import sync_folder, sync_tree
from gnnloom.storage.format.locks import held, lock_path, share
from gnnloom.storage.format.numpy_files import load_array
from gnnloom.storage.machine_memory import available_memory

#: Folder of the copies in a dataset, and the kind by which their locks are named.
MAPPED: Final = ".mapped"
_LOCK_KIND: Final = "mapped"


@dataclass(frozen=True)
class ArrayContent:
    """One array of a copy: its shape and dtype, and a function that yields consecutive ranges of its rows."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: Callable[[], Iterator[NDArray[Any]]]

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def empty(self) -> NDArray[Any]:
        """An array of no rows."""
        return np.empty((0, *self.shape[1:]), self.dtype)


Contents = Mapping[str, ArrayContent]


def open_copy(artifact: Artifact, contents: Contents) -> dict[str, NDArray[Any]]:
    """Map the copy of an artifact's arrays; make it first if there is none.

    Args:
        contents: name to content of each array.

    Returns:
        The arrays by name, read-only.

    Raises:
        BudgetError: the disk has no room for the copy.
        InputError: the folder of the dataset cannot be written.
        CorruptError: the copy is not one of this artifact.
    """
    path = copy_path(artifact)
    try:
        descriptor = _use_copy(path, contents)
    except OSError as error:
        raise InputError(f"{path}: cannot make the uncompressed copy for random access ({error.strerror})") from error
    try:
        arrays = {name: _map(path / f"{name}.npy", content) for name, content in contents.items()}
    except BaseException:
        os.close(descriptor)
        raise
    _close_after(descriptor, list(arrays.values()))
    return {name: np.asarray(array) for name, array in arrays.items()}


def copy_path(artifact: Artifact) -> Path:
    """Folder of the copy of an artifact, whether or not it exists."""
    return artifact.path.parents[1] / MAPPED / f"{artifact.kind}-{artifact.key}"


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
        CorruptError: a byte differs; the message names the file.
    """
    for name, content in contents.items():
        _verify_file(path / f"{name}.npy", content)
    return len(contents)


def _use_copy(path: Path, contents: Contents) -> int:
    """Lock a copy, shared, so that it stays; make it if there is none. Return the descriptor of the lock."""
    lock = copy_lock(path)
    while True:
        try:
            # Waits while another process makes the copy.
            descriptor = share(lock)
        except OSError:
            # A catalog that cannot be written: nobody can remove the copy, so it needs no lock.
            if _is_whole(path, contents):
                return os.open(path, os.O_RDONLY)
            raise
        if _is_whole(path, contents):
            return descriptor
        os.close(descriptor)
        # Never waits for the lock: once the copy is there, its users keep the lock for as long as they like.
        with held(lock) as is_ours:
            if is_ours and not _is_whole(path, contents):
                path.parent.mkdir(exist_ok=True)
                _write_copy(path, contents)
        if not is_ours:
            time.sleep(0.01)


def _is_whole(path: Path, contents: Contents) -> bool:
    """Whether a copy has all arrays: one that an earlier version made may lack some."""
    return path.is_dir() and all((path / f"{name}.npy").is_file() for name in contents)


def _write_copy(path: Path, contents: Contents) -> None:
    needed = sum(content.num_bytes for content in contents.values())
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        raise BudgetError(f"{path}: the uncompressed copy for random access takes {needed:,} bytes, {free:,} are free")
    # A kill leaves a hidden folder, which garbage collection removes.
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    aside.mkdir()
    try:
        for name, content in contents.items():
            with (aside / f"{name}.npy").open("wb") as file:
                file.write(_header(content))
                for chunk in content.chunks():
                    file.write(_bytes_of(chunk, content))
        sync_tree(aside)
        _remove_incomplete(path)
        aside.rename(path)
        sync_folder(path.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _remove_incomplete(path: Path) -> None:
    """Remove the copy that another version made, under a hidden name first, so that nobody sees half of it."""
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
        raise CorruptError(f"{path}: damaged copy ({error}); remove the folder") from error
    if (array.shape, array.dtype) != (content.shape, content.dtype):
        raise CorruptError(
            f"{path}: expected {content.dtype} of shape {content.shape}, found {array.dtype} of shape {array.shape};"
            " remove the folder"
        )
    _advise(array)
    return array


def _advise(array: np.memmap[Any, Any]) -> None:
    """Tell the system not to read ahead in an array that does not fit in memory."""
    mapped: object = array.base
    # Reading ahead loads a small array faster, but for a large one it evicts pages that are still needed.
    if isinstance(mapped, mmap.mmap) and 2 * array.nbytes > available_memory():
        mapped.madvise(mmap.MADV_RANDOM)


def _verify_file(path: Path, content: ArrayContent) -> None:
    try:
        with path.open("rb") as file:
            _compare(file.read(len(_header(content))), _header(content), path, "header")
            for chunk in content.chunks():
                wanted = _bytes_of(chunk, content)
                _compare(file.read(len(wanted)), wanted, path, "data")
            _compare(file.read(1), b"", path, "length")
    except OSError as error:
        raise CorruptError(f"{path}: the copy cannot be read ({error.strerror})") from error


def _compare(found: bytes, wanted: bytes | memoryview, path: Path, what: str) -> None:
    if found != wanted:
        raise CorruptError(f"{path}: the {what} differs from the artifact; remove the folder, the copy is made again")


def _close_after(descriptor: int, arrays: list[np.memmap[Any, Any]]) -> None:
    """Close the file of a lock when the last of these arrays is gone."""
    left = len(arrays)

    def count_down() -> None:
        nonlocal left
        left -= 1
        if not left:
            os.close(descriptor)

    for array in arrays:
        weakref.finalize(array, count_down)
