"""Writes the folder of a report atomically: readers see the old report or the new one, even after a kill."""

from __future__ import annotations

import ctypes
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gnnloom.storage.disk.files import sync_tree
from gnnloom.storage.errors import ExistsError, InputError
from gnnloom.storage.system_errors import OF_PERMISSION, check_is_of_content
from gnnloom.workflows.report.page import MARK
from gnnloom.workflows.report.pictures.style import Picture

PAGE = "index.html"
#: Folders of killed writers are removed at this age; no writer takes nearly that long.
_ABANDONED_SECONDS = 3600.0
#: From <fcntl.h> and <linux/fs.h>: relative paths start at the current folder; swap the two names.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def write_folder(folder: Path, draw: Callable[[], tuple[str, Sequence[Picture]]]) -> list[Path]:
    """Write a page and its pictures into a folder, which may hold an older report.

    Args:
        draw: makes the text of the page and the pictures, once the folder is known to be usable.

    Returns:
        The page, then the pictures.

    Raises:
        ExistsError: the folder exists and is not a report.
        InputError: the folder cannot be created.
    """
    folder = folder.absolute()
    if folder.exists() and not _is_replaceable(folder):
        raise ExistsError(f"{folder}: this path exists and is not a report; choose another folder with --out")
    with _folder_aside(folder) as aside:
        text, pictures = draw()
        for picture in pictures:
            picture.write_png(aside / f"{picture.name}.png")
        (aside / PAGE).write_text(text, encoding="utf-8")
        sync_tree(aside)
        _put_in_place(aside, folder)
    return [folder / PAGE, *(folder / f"{picture.name}.png" for picture in pictures)]


def _put_in_place(aside: Path, folder: Path) -> None:
    """Rename a folder to a name that may be taken; an existing folder of that name ends up under the old name."""
    try:
        aside.rename(folder)
    # The name is taken by a folder with files in it.
    except OSError:
        _exchange(aside, folder)


def _exchange(one: Path, other: Path) -> None:
    """Swap the names of two folders in one step, or in two where the file system cannot do it in one."""
    done = -1
    # Python has no name for this system call.
    swap = getattr(ctypes.CDLL(None), "renameat2", None)
    if swap is not None:
        done = swap(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if done != 0:
        before = other.with_name(f"{one.name}.before")
        other.rename(before)
        one.rename(other)
        shutil.rmtree(before, ignore_errors=True)


@contextmanager
def _folder_aside(folder: Path) -> Iterator[Path]:
    """Create an empty sibling folder that no other process uses; any folder that has its name at the end is removed."""
    # A sibling, because a rename does not cross file systems.
    aside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    try:
        aside.mkdir(parents=True)
    except OSError as error:
        check_is_of_content(error, folder, OF_PERMISSION)
        raise InputError(f"{folder}: cannot create it ({error.strerror}); choose another folder with --out") from error
    _remove_abandoned(folder)
    try:
        yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _remove_abandoned(folder: Path) -> None:
    """Remove files that killed writers of this report left."""
    for left in folder.parent.glob(f".{folder.name}.{'[0-9a-f]' * 32}*"):
        # Another process may be removing it, too.
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(left, ignore_errors=True)


def _is_replaceable(folder: Path) -> bool:
    """Return whether a folder is empty, or holds a report and nothing else."""
    if not folder.is_dir():
        return False
    files = list(folder.iterdir())
    # Everything in the folder would be removed with the report, so anything else in it protects it.
    if not files or any(file.name != PAGE and file.suffix != ".png" for file in files):
        return not files
    return (folder / PAGE).is_file() and MARK in (folder / PAGE).read_text(encoding="utf-8", errors="replace")
