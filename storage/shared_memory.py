"""Files in shared memory that killed processes left: the memory of MPI ranks, and semaphores of Python's processes.

MPICH keeps the memory that the ranks of a machine share under a name in ``/dev/shm``, which only an orderly end
removes; so does Python with the semaphores of its worker processes. A process that makes such a file has it mapped
until the process ends, so a file that no process has mapped or open belongs to nobody.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory is on Linux
#: Names of the memory that ranks share, and of the semaphores of worker processes.
SEGMENTS: Final = ("mpich_shm_",)
SEMAPHORES: Final = ("sem.mp-",)
#: Seconds for which something must have been unused: a process that begins opens its memory before it maps it.
SETTLED_SECONDS: Final = 1.0
#: The namespace of a machine's own processes, to which the processes of all containers are visible, as Linux numbers
#: it.
_ALL_PROCESSES: Final = "pid:[4026531836]"

#: Device and number of a file, which are the same under every name and in every container.
_Identity = tuple[int, int]


def remove_abandoned() -> list[Path]:
    """Remove files of this user in shared memory whose owner is provably gone.

    Removes nothing inside a container with processes of its own, or if a process of this user cannot be looked at:
    containers may share the memory without seeing each other's processes.

    Returns:
        The files that were removed.
    """
    if not _sees_all_processes():
        return []
    unused, is_complete = _unused(own_files(SHARED_MEMORY, (*SEGMENTS, *SEMAPHORES)))
    left = unused if is_complete else []
    for path in left:
        path.unlink(missing_ok=True)
    return left


def unused_files(folder: Path, prefixes: Sequence[str]) -> list[Path]:
    """Files of this user with these prefixes that no process that can be seen from here has mapped or open."""
    return _unused(own_files(folder, prefixes))[0]


def own_files(folder: Path, prefixes: Sequence[str]) -> Iterator[Path]:
    """Files and folders of this user whose names begin with one of the prefixes, in order."""
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.name.startswith(tuple(prefixes)) and _is_mine(path):
            yield path


def changed(path: Path) -> float:
    """When a file was made or changed, in seconds since 1970; now if it is gone."""
    try:
        return path.lstat().st_ctime
    except FileNotFoundError:
        return time.time()


def _is_settled(path: Path) -> bool:
    return time.time() - changed(path) > SETTLED_SECONDS


def _is_mine(path: Path) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return found.st_uid == os.getuid() and not stat.S_ISLNK(found.st_mode)


def _sees_all_processes() -> bool:
    try:
        return Path("/proc/self/ns/pid").readlink().name == _ALL_PROCESSES
    except OSError:
        return False


def _identity(path: Path) -> _Identity | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _unused(files: Iterable[Path]) -> tuple[list[Path], bool]:
    """Settled files that no process has mapped or open, and whether every process of this user could be looked at.

    A look at a process takes up to a millisecond. Files in use mostly belong to new processes, so these come first, and
    the search ends when every file has its owner.
    """
    unused = [path for path in files if _is_settled(path)]
    is_complete = True
    for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: -int(path.name)) if unused else ():
        # A process may end at any moment.
        try:
            if process.stat().st_uid != os.getuid():
                continue
            used = {*_mapped(process), *map(_identity, (process / "fd").iterdir())}
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            # The system's first process is no rank and no worker, and often lets nobody look at it.
            is_complete = is_complete and process.name == "1"
            continue
        unused = [path for path in unused if _identity(path) not in used]
        if not unused:
            break
    return unused, is_complete


def _mapped(process: Path) -> Iterator[_Identity]:
    """The files that a process has mapped, from lines ``ADDRESSES RIGHTS OFFSET MAJOR:MINOR NUMBER PATH``."""
    with (process / "maps").open(errors="replace") as lines:
        for line in lines:
            parts = line.split(maxsplit=5)
            if len(parts) > 5 and parts[4] != "0":
                major, _, minor = parts[3].partition(":")
                yield os.makedev(int(major, 16), int(minor, 16)), int(parts[4])
