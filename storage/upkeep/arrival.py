"""Arrival of a dataset in a catalog, from an archive or a URL: checked first, and visible at once or not at all.

Data from elsewhere may be hostile: names must be plain and stay below the dataset, and sizes are checked before
anything is written.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from gnnloom.storage.catalog import Catalog, Dataset, check_name
from gnnloom.storage.checks.verify import verify_dataset
from gnnloom.storage.disk.files import sync_folder, sync_tree
from gnnloom.storage.errors import BudgetError, CorruptError, ExistsError, GnnloomError, InputError
from gnnloom.storage.faults import fault_point
from gnnloom.storage.format.schema import SCHEMAS
from gnnloom.storage.system_errors import check_is_of_content
from gnnloom.storage.upkeep.garbage import refresh_lists

#: The longest name of a file; names in a dataset are far shorter, and tarfile reads a long name into memory.
LONGEST_NAME: Final = 1024
#: First components of the names; hidden folders, such as locks', are not included.
_TOP: Final = frozenset({*SCHEMAS, "runs", "zarr.json"})
#: Bytes of disk space that an arrival leaves free.
_RESERVE: Final = 64 << 20


def free_path(catalog: Catalog, source: str, stated: Any, name: str | None) -> Path:
    """Path of a new dataset, which must not exist.

    Args:
        stated: name of the dataset where it comes from.
        name: name that it gets here; None for the same.
    """
    chosen = check_name(str(stated), f"{source}: dataset") if name is None else check_name(name)
    final = catalog.root / chosen
    if os.path.lexists(final):
        raise ExistsError(f"{final}: a dataset of this name exists already; give another name with --as")
    return final


@contextmanager
def folder_aside(root: Path, name: str | None = None) -> Iterator[Path]:
    """A folder for a dataset that arrives, locked so that garbage collection keeps away.

    Args:
        name: of a folder that another process may have begun, and that stays after an error; by default, the folder is
            new, and deleted at the end unless it was renamed.

    Raises:
        InputError: another process has this folder.
    """
    # Inside the catalog, because a rename is atomic only within one file system; hidden, so that the catalog does not
    # list it.
    aside, descriptor = _locked_folder(root, name)
    try:
        yield aside
    finally:
        os.close(descriptor)
        if name is None:
            # After a successful import the folder has its final name, and this finds nothing.
            shutil.rmtree(aside, ignore_errors=True)


def _locked_folder(root: Path, name: str | None) -> tuple[Path, int]:
    """Make a folder and lock it; returns it and the descriptor of the lock."""
    while True:
        aside = root / f".importing-{name or uuid.uuid4().hex}"
        aside.mkdir(exist_ok=name is not None)
        # Until it is locked, garbage collection may take the folder for one that was left behind.
        try:
            descriptor = os.open(aside, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB if name is not None else fcntl.LOCK_EX)
        except BlockingIOError:
            os.close(descriptor)
            raise InputError(f"{aside}: another process is getting this dataset; wait for it, or end it") from None
        if aside.exists():
            return aside, descriptor
        os.close(descriptor)


def checked_name(source: str, name: str) -> str:
    """Return the name of a file of a dataset if it is plain, and leads nowhere else.

    Raises:
        InputError: it is not.
    """
    components = name.split("/")
    # No component may start with a dot: this rules out ``..``, hidden files and, with empty components, absolute
    # paths.
    is_plain = len(name) <= LONGEST_NAME and name.isascii() and name.isprintable() and "\\" not in name
    if not is_plain or any(not each or each.startswith(".") or len(each) > 255 for each in components):
        raise InputError(f"{source}: the name {name[:200]!r} is not a plain name in a dataset")
    if components[0] not in _TOP:
        raise InputError(f"{source}: {name!r} is not part of a dataset")
    return name


def check_space(folder: Path, size: int, source: str) -> None:
    """Refuse a dataset that does not fit the disk.

    Raises:
        BudgetError: the disk has less than ``size`` bytes to spare.
    """
    free = shutil.disk_usage(folder).free - _RESERVE
    if size > free:
        raise BudgetError(f"{source}: needs {size:,} bytes unpacked, but the disk has only {max(0, free):,} free")


def publish(aside: Path, final: Path, source: str, shown: str) -> None:
    """Check the contents of a folder that holds a whole dataset, and give it its name.

    Args:
        source: where the dataset comes from, for messages.
        shown: name of the folder in messages about its files.

    Raises:
        CorruptError: the dataset is damaged.
        ExistsError: there is something of this name by now.
    """
    _check_contents(source, shown, aside)
    # Checked and synced before the rename, which makes everything visible at once. A kill before it leaves a hidden
    # folder that nobody locks, which garbage collection removes.
    sync_tree(aside)
    fault_point("arrival.rename", aside)
    try:
        aside.rename(final)
    except OSError as error:
        check_is_of_content(error, final, {errno.ENOTEMPTY})
        raise ExistsError(f"{final}: {error.strerror}; give another name with --as") from error
    sync_folder(final.parent)


def _check_contents(source: str, shown: str, folder: Path) -> None:
    """Check the digests of everything: a well-formed source can hold a damaged dataset."""
    try:
        dataset = Dataset(folder)
        # A process that was killed may not have listed its files, and a run can go on while it is exported.
        refresh_lists(dataset)
        problems = [finding.problem for finding in verify_dataset(dataset, quick=True) if finding.problem]
    except GnnloomError as error:
        problems = [str(error)]
    if problems:
        # The temporary folder is gone by the time anybody reads this, so the message names the source.
        raise CorruptError(f"{source}: holds a damaged dataset: {problems[0].replace(f'{folder}', shown)}")
