"""Pulls a dataset from a URL that :mod:`gnnloom.storage.upkeep.push` pushed it to.

Files arrive in a hidden folder of the catalog, which a repeated pull continues, and are compared with their digests.
The dataset appears in the catalog when everything is there and has been checked, as after an import.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from threading import Lock

import xxhash

from gnnloom.storage.catalog import Catalog, Dataset
from gnnloom.storage.disk.remote_folder import RemoteFolder
from gnnloom.storage.errors import CorruptError, InputError, NotFoundError
from gnnloom.storage.faults import fault_point
from gnnloom.storage.meters import ProgressMeter
from gnnloom.storage.upkeep.arrival import check_space, checked_name, folder_aside, free_path, publish
from gnnloom.storage.upkeep.push import OBJECTS, FileList, PushedFile, TransferSizes, each_at_once

#: Folder for files that are on their way.
_PARTS = ".parts"


def pull_dataset(
    catalog: Catalog, url: str, name: str | None = None, *, sizes: TransferSizes | None = None
) -> tuple[Dataset, int]:
    """Copy a dataset from a URL into a catalog.

    Args:
        name: name of the new dataset; by default the name that it had.
        sizes: files at once, and bytes of each in memory.

    Returns:
        The dataset, and the bytes that were read: files of an earlier pull that was stopped are not read again.

    Raises:
        NotFoundError: there is no dataset at the URL, or its push has not finished.
        InputError: the URL cannot be used, the storage refuses, or another process pulls the same dataset.
        CorruptError: an object is missing or damaged, or the dataset is damaged.
        FormatError: the dataset has a newer format.
        ExistsError: the catalog has a dataset of this name.
        BudgetError: the disk has too little space.
    """
    sizes = sizes or TransferSizes()
    remote = RemoteFolder(url, sizes.silence)
    listed = FileList.read(remote, sizes.longest_list)
    for file in listed.files:
        checked_name(remote.shown, file)
    final = free_path(catalog, remote.shown, listed.dataset, name)
    catalog.root.mkdir(parents=True, exist_ok=True)
    known = xxhash.xxh3_128_hexdigest(f"{url}\0{final.name}".encode())
    with folder_aside(catalog.root, known) as aside:
        read = _fetch(remote, listed, aside, sizes)
        try:
            publish(aside, final, remote.shown, remote.shown)
        except CorruptError:
            # The pushed dataset itself is damaged: another attempt would find the same.
            shutil.rmtree(aside, ignore_errors=True)
            raise
    return catalog.dataset(final.name), read


def _fetch(remote: RemoteFolder, listed: FileList, aside: Path, sizes: TransferSizes) -> int:
    """Bring a folder to the state that a list describes; returns the bytes that were read."""
    shutil.rmtree(aside / _PARTS, ignore_errors=True)
    _remove_others(aside, listed)
    check_space(
        aside, listed.total - sum(path.stat().st_size for path in aside.rglob("*") if path.is_file()), remote.shown
    )
    (aside / _PARTS).mkdir()
    meter, lock, read = ProgressMeter("pull", len(listed.files), "bytes"), Lock(), [0]

    def pull(entry: tuple[str, PushedFile]) -> None:
        name, file = entry
        path = aside / name
        is_there = path.is_file() and path.stat().st_size == file.bytes and _digest(path, sizes.piece) == file.digest
        if not is_there:
            _pull_file(remote, name, file, aside, sizes.piece)
        with lock:
            read[0] += 0 if is_there else file.bytes
            meter.advance(file.bytes)

    each_at_once(listed.files.items(), pull, sizes.at_once)
    (aside / _PARTS).rmdir()
    return read[0]


def _remove_others(aside: Path, listed: FileList) -> None:
    """Remove what an earlier pull brought and the list does not have any more, with the folders that become empty."""
    for where, folders, names in os.walk(aside, topdown=False):
        for path in (Path(where, name) for name in names):
            if path.relative_to(aside).as_posix() not in listed.files:
                path.unlink()
        for folder in folders:
            # A folder with files stays.
            with suppress(OSError):
                Path(where, folder).rmdir()


def _digest(path: Path, piece: int) -> str:
    state = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(piece):
            state.update(block)
    return state.hexdigest()


def _pull_file(remote: RemoteFolder, name: str, file: PushedFile, aside: Path, piece: int) -> None:
    """Read an object, compare it with its digest, and give it its name."""
    stored, state = f"{OBJECTS}/{file.digest}", xxhash.xxh3_128()
    # By name, because several files may have the same bytes.
    part = aside / _PARTS / xxhash.xxh3_128_hexdigest(name.encode())
    with part.open("wb") as out:
        try:
            for block in remote.pieces(stored, file.bytes, piece):
                out.write(block)
                state.update(block)
        except NotFoundError:
            raise CorruptError(f"{remote.shown}/{stored}: missing; it has {name}; push the dataset again") from None
        size = out.tell()
    fault_point("pull.rename", part)
    if (state.hexdigest(), size) != (file.digest, file.bytes):
        raise CorruptError(
            f"{remote.shown}/{stored}: damaged: its digest is wrong; it has {name}; remove it there,"
            f" and push the dataset again"
        )
    try:
        (aside / name).parent.mkdir(parents=True, exist_ok=True)
        part.replace(aside / name)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise InputError(f"{remote.shown}: {name} has the name of another file or folder") from error
