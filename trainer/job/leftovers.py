"""What killed processes leave outside of catalogs: shared memory of MPI, semaphores, temporary folders.

MPICH keeps the memory that the ranks of a machine share under a name in ``/dev/shm``, which only an orderly end
removes; so does Python with the semaphores of its worker processes.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gnnloom.storage.format.files import tree_bytes
from gnnloom.storage.format.locks import is_shared_folder
from gnnloom.storage.format.own_folder import MARK, PREFIX

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory is on Linux
#: Names of the memory that ranks share, and of the semaphores of worker processes.
_SEGMENTS: Final = ("mpich_shm_",)
_SEMAPHORES: Final = ("sem.mp-",)
#: Seconds for which something must have been unused: a process that begins opens its memory before it maps it.
_SETTLED_SECONDS: Final = 1.0
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
        temporary: folder of the temporary folders; by default that of the system.
    """
    files = [Leftover(path, path.stat().st_size) for path in _unused(shared, (*_SEGMENTS, *_SEMAPHORES))]
    folder = Path(tempfile.gettempdir()) if temporary is None else temporary
    return files + [Leftover(path, tree_bytes(path)) for path in _left_folders(folder)]


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
    names = [path for path in _mine(shared, _SEGMENTS) if _changed(path) >= started]
    if not names:
        return []
    # Another job may be beginning: its ranks have opened their memory, and map it within moments.
    time.sleep(_SETTLED_SECONDS)
    left = [path for path in _unused(shared, _SEGMENTS) if path in names]
    for path in left:
        path.unlink(missing_ok=True)
    return left


def _unused(folder: Path, prefixes: Sequence[str]) -> list[Path]:
    """Files of this user with these prefixes that no process has mapped or open."""
    settled = [path for path in _mine(folder, prefixes) if time.time() - _changed(path) > _SETTLED_SECONDS]
    used = _used_files() if settled else set()
    return [path for path in settled if str(path) not in used]


def _mine(folder: Path, prefixes: Sequence[str]) -> Iterator[Path]:
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.name.startswith(tuple(prefixes)) and _is_mine(path):
            yield path


def _is_mine(path: Path) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return found.st_uid == os.getuid() and not stat.S_ISLNK(found.st_mode)


def _changed(path: Path) -> float:
    """When a file was made or changed; now if it is gone."""
    try:
        return path.lstat().st_ctime
    except FileNotFoundError:
        return time.time()


def _used_files() -> set[str]:
    """All files that processes of this user have mapped or open."""
    used: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        # A process may end at any moment, and those of other users are closed to this one.
        try:
            lines = (process / "maps").read_text(errors="replace").splitlines()
            used.update(line.split(maxsplit=5)[5] for line in lines if line.count(" ") and "/" in line)
            used.update(str(entry.readlink()) for entry in (process / "fd").iterdir())
        except OSError:
            continue
    return used


def _left_folders(folder: Path) -> list[Path]:
    found = [path for path in _mine(folder, (PREFIX,)) if (path / MARK).exists() and not is_shared_folder(path)]
    return [path for path in found if time.time() - _newest(path) > QUIET_SECONDS]


def _newest(folder: Path) -> float:
    return max((_changed(path) for path in (folder, *folder.rglob("*"))), default=time.time())
