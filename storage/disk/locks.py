"""Advisory locks on artifacts and runs: the writer holds the lock, which the system releases on any exit."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from gnnloom.storage.disk.files import refuse_link
from gnnloom.storage.system_errors import OF_PERMISSION

LOCKS = ".locks"
#: Environment variable that names the job of a process, such as of the ranks of a training run.
JOB: Final = "GNNLOOM_JOB"
#: How often, and how long apart, a lock is tried that another process may only be looking at.
_LOOKS, _LOOK_SECONDS = 5, 0.01
LOGGER = logging.getLogger("gnnloom.storage")


def lock_path(dataset: Path, kind: str, key: str) -> Path:
    """The file that a process locks while it writes an artifact, or a run (``kind`` "runs")."""
    return dataset / LOCKS / f"{kind}-{key}"


@contextmanager
def locked(dataset: Path, kind: str, key: str, common: str = "") -> Iterator[None]:
    """Hold the lock of an artifact; wait while another process holds it.

    Args:
        common: one process of a job acts for all processes of the job. The others are expected to wait, so a warning is
            logged only if the lock belongs to a process of another job.
    """
    path = lock_path(dataset, kind, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    # A flock, not a lock file: the kernel releases it when the process dies, so a kill leaves no stale lock.
    descriptor = _lock(path, common or f"{kind}/{key}", is_common=bool(common))
    try:
        if common:
            _note_job(descriptor)
        yield
    finally:
        os.close(descriptor)


def _lock(path: Path, what: str, *, is_common: bool) -> int:
    """Lock the file at ``path`` and return its descriptor; log that this process waits if another one has it."""
    # Garbage collection may delete the file between opening and locking it; then others would not see the lock.
    while True:
        descriptor = _open(path, os.O_RDWR | os.O_CREAT)
        # Tried without waiting first, only to report that this process is about to wait.
        if not _takes(descriptor, fcntl.LOCK_EX):
            level = _level_of_wait(path) if is_common else logging.WARNING
            LOGGER.log(level, "waiting for another process that makes %s", what)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_named(descriptor, path):
            return descriptor
        os.close(descriptor)


def _note_job(descriptor: int) -> None:
    """Write the job of this process into the file that it has locked; processes that wait read it."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, os.environ.get(JOB, "").encode(), 0)
    # A rank on another node reads it through a network file system.
    os.fsync(descriptor)


def _level_of_wait(path: Path) -> int:
    """The level at which to log a wait for the process that has locked a file: DEBUG if it is of the same job.

    If neither process belongs to a named job, they may still work together, so the level is INFO; otherwise WARNING.
    """
    own, holder = os.environ.get(JOB, ""), ""
    # The holder writes its job just after it has locked the file.
    for _ in range(_LOOKS):
        # Garbage collection may delete the file as soon as its holder is done.
        with suppress(FileNotFoundError):
            holder = path.read_text(encoding="utf-8", errors="replace")
        if holder == own:
            return logging.DEBUG if own else logging.INFO
        time.sleep(_LOOK_SECONDS)
    return logging.WARNING


@contextmanager
def held(lock: Path | None) -> Iterator[bool]:
    """Hold a lock, creating its file if needed; yields False, without waiting, if another process holds it."""
    if lock is None:
        yield True
        return
    lock.parent.mkdir(parents=True, exist_ok=True)
    # An import locks its folder itself, and a folder can only be opened for reading.
    descriptor = _open(lock, os.O_RDONLY if lock.is_dir() else os.O_RDWR | os.O_CREAT)
    try:
        yield _takes_soon(descriptor) and _is_named(descriptor, lock)
    finally:
        os.close(descriptor)


def share(lock: Path) -> int:
    """Lock a file together with any number of other users, and return its descriptor; closing that releases the lock.

    Waits while a process holds the lock for writing.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = _open(lock, os.O_RDWR | os.O_CREAT)
        if not _takes(descriptor, fcntl.LOCK_SH):
            LOGGER.warning("waiting for another process that removes %s", lock.name)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        if _is_named(descriptor, lock):
            return descriptor
        os.close(descriptor)


def is_shared(lock: Path) -> bool:
    """Whether a living process holds the lock on a file, for writing or shared."""
    # Nobody has locked the target of a link: see _open.
    if lock.is_symlink() or not lock.exists():
        return False
    try:
        with held(lock) as is_ours:
            return not is_ours
    except OSError as error:
        if error.errno not in OF_PERMISSION:
            raise
        # A file that cannot be opened for writing can be asked, except on some network file systems.
        return _is_taken(lock, fcntl.LOCK_EX)


def is_shared_folder(folder: Path) -> bool:
    """Whether a living process holds the lock on a folder, for writing or shared."""
    return _is_taken(folder, fcntl.LOCK_EX)


def is_held(lock: Path) -> bool:
    """Whether a living process holds the advisory lock on a file or folder."""
    # A shared lock: two processes that ask at the same time do not take each other for a writer.
    return _is_taken(lock, fcntl.LOCK_SH)


def _is_taken(path: Path, kind: int) -> bool:
    """Whether a lock that another process holds excludes one of a kind."""
    if path.is_symlink():
        return False
    try:
        descriptor = _open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not _takes(descriptor, kind)
    finally:
        os.close(descriptor)


def _open(path: Path, flags: int) -> int:
    """Open a file or folder to lock it.

    Raises:
        CorruptError: it is a link, which would make a file elsewhere or lock the file of somebody else.
    """
    try:
        # Without waiting for the other end, should it be a pipe.
        return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:
            refuse_link(path)
        raise


def _is_named(descriptor: int, path: Path) -> bool:
    """Whether the open file still has this name; it does not if it was deleted before it was locked."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _takes_soon(descriptor: int) -> bool:
    """Lock an open file for writing, unless another process holds it for longer than a look takes."""
    # A process that only asks whether a lock is held takes it, shared, for an instant; it is not the holder.
    for _ in range(_LOOKS):
        if _takes(descriptor, fcntl.LOCK_EX):
            return True
        time.sleep(_LOOK_SECONDS)
    return _takes(descriptor, fcntl.LOCK_EX)


def _takes(descriptor: int, kind: int) -> bool:
    """Lock an open file, if no other process holds it; returns whether it is locked."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
