"""Removes leftovers of killed processes outside of catalogs: MPI's shared memory, semaphores, temporary folders."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gnnloom.storage import shared_memory
from gnnloom.storage.disk.files import tree_bytes
from gnnloom.storage.disk.locks import is_shared_folder
from gnnloom.storage.disk.own_folder import MARK, PREFIX
from gnnloom.storage.shared_memory import SEGMENTS, SEMAPHORES, SHARED_MEMORY, changed, own_files, unused_files

#: Seconds without a change after which a temporary folder that nobody has locked counts as left behind.
QUIET_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Leftover:
    """Something that no process uses: a file in shared memory, or a temporary folder."""

    path: Path
    bytes: int


def find_leftovers(shared: Path = SHARED_MEMORY, temporary: Path | None = None) -> list[Leftover]:
    """Find what killed processes of this user left on this machine.

    Args:
        shared: folder of the shared memory.
        temporary: folder of the temporary folders; by default the system's.
    """
    files = [Leftover(path, path.stat().st_size) for path in unused_files(shared, (*SEGMENTS, *SEMAPHORES))]
    folder = Path(tempfile.gettempdir()) if temporary is None else temporary
    for path in own_files(folder, (PREFIX,)):
        if (path / MARK).exists() and not is_shared_folder(path):
            newest = max((changed(each) for each in (path, *path.rglob("*"))), default=time.time())
            if time.time() - newest > QUIET_SECONDS:
                files.append(Leftover(path, tree_bytes(path)))
    return files


def remove_leftovers(leftovers: Iterable[Leftover]) -> None:
    """Remove what :func:`find_leftovers` found."""
    for item in leftovers:
        if item.path.is_dir():
            shutil.rmtree(item.path, ignore_errors=True)
        else:
            item.path.unlink(missing_ok=True)


def remove_segments_since(started: float, shared: Path = SHARED_MEMORY) -> list[Path]:
    """Remove the shared memory of ranks that has come since ``started`` (seconds since 1970) and that nobody uses.

    Returns:
        The names that were removed.
    """
    names = [path for path in own_files(shared, SEGMENTS) if changed(path) >= started]
    if not names:
        return []
    # Another job may be beginning: its ranks have opened their memory, and map it within moments.
    time.sleep(shared_memory.SETTLED_SECONDS)
    left = [path for path in unused_files(shared, SEGMENTS) if path in names]
    for path in left:
        path.unlink(missing_ok=True)
    return left
