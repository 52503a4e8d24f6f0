"""Errors of the operating system: whether one is about the content of a file, and what a user can do about it."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gnnloom.storage.machine_memory import memory_text

AGAIN: Final = "finished work is kept, run the command again to continue"
#: Too many open files.
OF_LIMITS: Final = frozenset({errno.EMFILE, errno.ENFILE})
#: The disk is full.
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NOT_WRITABLE: Final = "make it writable, or choose another folder, such as another catalog (--catalog)"
_NOT_ALLOWED: Final = "allow this user to read and write there, or choose another folder"
_DISK_FAILS: Final = "the disk or its file system fails: see the log of the system (dmesg)"
#: A path cannot be used.
_PATH_ERRORS: Final = frozenset({
    errno.ENOTDIR, errno.ENOENT, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP,
})  # fmt: skip
#: The user may not read or write there.
OF_PERMISSION: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
#: One file cannot be read, while others can.
OF_ONE_FILE: Final = OF_PERMISSION | {errno.EIO}
#: The path holds something other than the stored file. All other numbers are about this process, the
#: machine, its disk or its network.
_OF_CONTENT: Final = _PATH_ERRORS | {
    errno.EINVAL, errno.ENXIO, errno.ENODEV, errno.ENODATA, errno.EBADMSG, errno.EOVERFLOW,
}  # fmt: skip
#: Names, or prefixes of names, of work folders, temporary folders and the metadata of datasets.
_WORK, _OWN_FOLDER, _METADATA = ".work", "gnnloom-", "zarr.json"
#: Messages of torch and Python about exhausted memory, for which they have no separate errors.
_OUT_OF_MEMORY: Final = ("can't allocate memory", "not enough memory", "can't start new thread")


def check_is_of_content(error: BaseException, path: Path | str, also: Collection[int] = ()) -> None:
    """Raise an error again, with its file, if it says nothing about what is stored: limits, permissions, the disk.

    Call this before an error is reported as damage or as a wrong file, because users remove damaged files.

    Args:
        path: the file or folder that was read or made.
        also: further numbers of errors for which it returns.
    """
    if is_out_of_memory(error):
        raise error
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, OSError) and number is not None and number not in _OF_CONTENT and number not in also:
        if error.filename is None:
            error.filename = str(path)
        raise error


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Give a file to errors of the system that have none: errors of a write have only a number."""
    try:
        yield
    except OSError as error:
        # NumPy gives no number either.
        if error.errno is None and "requested and" in str(error):
            number = errno.ENOSPC if file_size_limit() is None else errno.EFBIG
            raise OSError(number, os.strerror(number), str(path)) from error
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory is used up."""
    if isinstance(error, RuntimeError):
        return any(text in str(error) for text in _OUT_OF_MEMORY)
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)


def address_space_limit() -> str:
    """The limit of this process's address space, as text; empty if there is none."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return "" if limit == resource.RLIM_INFINITY else f"{limit >> 20:,} MiB of address space (ulimit -v)"


def system_error_in_one_line(error: OSError) -> tuple[str, int] | None:
    """The message and the exit code for an error of a disk, a path or a limit; None for a defect of ours."""
    where = f"{error.filename}: " if error.filename else ""
    if error.errno in _PATH_ERRORS and error.filename:
        return f"{where}{error.strerror}; choose another path", 3
    remedy = _remedy(error)
    if remedy:
        return f"{where}{error.strerror}; {remedy}", 1
    # Libraries raise an OSError with a sentence and no number if a write failed.
    if error.errno is None and not isinstance(error, ConnectionError):
        return f"{where}{error}; {AGAIN}", 1
    return None


def _remedy(error: OSError) -> str:
    """Remedy for an error of the disk, of permissions or of a limit; empty for other errors."""
    if error.errno in FULL:
        return f"{_of_full_disk(error)}; {AGAIN}"
    if error.errno == errno.EROFS:
        return _NOT_WRITABLE
    if error.errno in OF_PERMISSION:
        return _NOT_ALLOWED
    if error.errno == errno.EIO:
        return f"{_DISK_FAILS}; {AGAIN}"
    if error.errno == errno.EFBIG:
        limit = file_size_limit()
        if limit is None:
            return f"the file system allows no larger file: use another disk; {AGAIN}"
        return f"a file may have only {memory_text(limit)} (ulimit -f): raise the limit; {AGAIN}"
    if error.errno == errno.EMFILE:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"a process may open only {most:,} files (ulimit -n): raise the limit; {AGAIN}"
    if error.errno == errno.ENFILE:
        return f"all processes together have opened as many files as this machine allows (fs.file-max); {AGAIN}"
    return ""


def file_size_limit() -> int | None:
    """The most bytes of a file that this process may write; None if there is no limit."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _of_full_disk(error: OSError) -> str:
    """Sentence that names the full disk, and the option that moves the file to another disk."""
    if not error.filename:
        return "free some space"
    path = Path(os.fsdecode(error.filename)).absolute()
    folder = next((each for each in path.parents if each.is_dir()), Path("/")).resolve()
    disk = next(each for each in (folder, *folder.parents) if each.is_mount())
    space = os.statvfs(folder)
    if error.errno == errno.EDQUOT:
        what = f"the disk quota of this user on {disk} is used up"
    elif space.f_files and not space.f_favail:
        what = f"the disk of {disk} has no room for more files (inodes)"
    else:
        what = f"the disk of {disk} has {memory_text(space.f_bavail * space.f_frsize)} free"
    return f"{what}: free some space, or {_way_out(path, disk)}"


def _way_out(path: Path, disk: Path) -> str:
    """Sentence that says how to put a file on another disk.

    Args:
        path: path of the file.
        disk: mount point of its disk.
    """
    if disk == Path("/dev/shm"):  # noqa: S108 - the name of shared memory, where nothing is made here
        return "make the shared memory larger (in Docker with --shm-size)"
    if _WORK in path.parts:
        return (
            "put temporary files on another disk (--scratch or GNNLOOM_SCRATCH; `gnnloom catalog gc` first removes what"
            " is unfinished)"
        )
    if any(part.startswith(_OWN_FOLDER) for part in path.parts):
        return "put temporary files on another disk (the environment variable TMPDIR)"
    if path.name == _METADATA or any((parent / _METADATA).is_file() for parent in path.parents):
        return "put the catalog on another disk (--catalog or GNNLOOM_CATALOG)"
    return "choose a path on another disk"
