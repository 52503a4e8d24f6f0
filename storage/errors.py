"""The errors of gnnloom: one small tree, each with the exit code of the command line.

Every message names the file, dataset or array, states what was expected and what was found, and suggests a fix if
there is one. Each class also inherits the built-in error that matches it, so that callers who know nothing of gnnloom
can catch what they know.
"""

from __future__ import annotations

import errno
import resource
from pathlib import Path
from typing import ClassVar


class GnnloomError(Exception):
    """Base of every error that gnnloom raises on purpose."""

    exit_code: ClassVar[int] = 1

    def __str__(self) -> str:
        # KeyError would show the repr of its argument: quotes around a sentence.
        return " ".join(str(argument) for argument in self.args)


class InputError(GnnloomError, ValueError):
    """The user's input (the contents of a file, the value of an option) cannot be used."""

    exit_code = 3


class NotFoundError(GnnloomError, LookupError):
    """The requested file, dataset, artifact or array does not exist."""

    exit_code = 3


class ExistsError(GnnloomError, FileExistsError):
    """Something with this name exists already, made from other inputs or parameters."""

    exit_code = 3


class FormatError(GnnloomError, ValueError):
    """A store that gnnloom did not write, that has a newer format, or whose arrays break the schema."""

    exit_code = 3


class CorruptError(GnnloomError, ValueError):
    """Stored bytes differ from the bytes that were written: a checksum, digest or chunk is wrong."""

    exit_code = 3


class DamagedWorkError(CorruptError):
    """A temporary file of a stage is damaged. Without the file, the stage makes it again.

    Attributes:
        path: the file.
        damage: what is wrong with it.
    """

    def __init__(self, path: Path | str, damage: str) -> None:
        # The arguments are those of the constructor, so that the error can be sent between processes.
        super().__init__(path, damage)
        self.path, self.damage = Path(path), damage

    def __str__(self) -> str:
        return f"{self.path}: {self.damage}"


class BudgetError(GnnloomError, MemoryError):
    """The work does not fit the memory or disk that it was given."""

    exit_code = 3


class IncompleteError(GnnloomError, RuntimeError):
    """An artifact that was begun and never finished; running its stage again finishes it."""

    exit_code = 4


class PartitionerError(GnnloomError, RuntimeError):
    """A native partitioner failed, hung, or left no usable result."""

    exit_code = 1


class LaunchError(GnnloomError, RuntimeError):
    """Ranks could not be started, or ended in failure."""

    exit_code = 1


class DivergedError(GnnloomError, ArithmeticError):
    """The training diverged: a loss or weight is not finite."""

    exit_code = 1


class MissingPackageError(GnnloomError, ImportError):
    """A package that only some commands need is not installed."""

    exit_code = 1


_AGAIN = "finished work is kept, run the command again to continue"
_FREE_SPACE = f"free some space; {_AGAIN}"
_NOT_WRITABLE = "make it writable, or choose another folder, such as another catalog (--catalog)"
#: What to do if the disk is full, failing or not writable, or if a limit on files is reached.
_DISK_ERRORS = {
    errno.ENOSPC: _FREE_SPACE,
    errno.EDQUOT: _FREE_SPACE,
    errno.EROFS: _NOT_WRITABLE,
    errno.EACCES: "allow this user to read and write there, or choose another folder",
    errno.EPERM: "allow this user to read and write there, or choose another folder",
    **dict.fromkeys((errno.EIO, errno.EFBIG, errno.EMFILE, errno.ENFILE), _AGAIN),
}
#: A path that the user named cannot be used.
_PATH_ERRORS = frozenset({errno.ENOTDIR, errno.ENOENT, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP})
#: How torch and Python, which have no errors of their own for it, say that memory is used up.
_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "can't start new thread")


def in_one_line(error: BaseException) -> tuple[str, int] | None:
    """The message and the exit code for an error that is reported without a traceback; None for a defect of ours.

    Errors of gnnloom, of storage and of memory are reported in one line. An OSError that is about neither a disk nor a
    path is a defect.
    """
    if isinstance(error, GnnloomError):
        return str(error), error.exit_code
    if _is_out_of_memory(error):
        what = str(error).splitlines()[0] if str(error) else "an allocation failed"
        limit = address_space_limit()
        return f"out of memory ({what})" + (f": a process may use only {limit}" if limit else ""), 1
    return _system_error(error) if isinstance(error, OSError) else None


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, RuntimeError):
        return any(text in str(error) for text in _OUT_OF_MEMORY)
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)


def address_space_limit() -> str:
    """The limit of this process's address space, as text; empty if there is none."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return "" if limit == resource.RLIM_INFINITY else f"{limit >> 20:,} MiB of address space (ulimit -v)"


def _system_error(error: OSError) -> tuple[str, int] | None:
    where = f"{error.filename}: " if error.filename else ""
    if error.errno in _PATH_ERRORS and error.filename:
        return f"{where}{error.strerror}; choose another path", 3
    # Libraries raise an OSError with a sentence and no number if a write failed.
    if error.errno in _DISK_ERRORS:
        return f"{where}{error.strerror}; {_DISK_ERRORS[error.errno]}", 1
    if error.errno is None and not isinstance(error, ConnectionError):
        return f"{where}{error}; {_AGAIN}", 1
    return None
