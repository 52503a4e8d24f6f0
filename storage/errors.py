"""The errors of gnnloom: one small tree, each with the exit code of the command line.

Every message names the file, dataset or array, states the expected and the found value, and suggests a fix if there is
one. Each class also inherits the built-in error that matches it, so that callers that know nothing of gnnloom can catch
the built-in error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Final

from gnnloom.storage.system_errors import address_space_limit, is_out_of_memory, system_error_in_one_line
from gnnloom.storage.wording import printable, shortened


class GnnloomError(Exception):
    """Base of every error that gnnloom raises on purpose."""

    exit_code: ClassVar[int] = 1

    def __str__(self) -> str:
        # KeyError would show the repr of its argument: quotes around a sentence. A message may quote files and their
        # names, and tracebacks and notebooks show it as it is.
        return printable(" ".join(str(argument) for argument in self.args), keep="\n")


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
        # The arguments are the constructor's arguments, so that the error can be sent between processes.
        super().__init__(path, damage)
        self.path, self.damage = Path(path), damage

    def __str__(self) -> str:
        return printable(f"{self.path}: {self.damage}", keep="\n")


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


#: Message of numba if no folder can hold a compiled function.
#: Most characters of a message that is printed, or sent by a task. Dask cuts longer ones than 10,000
#: (``distributed.admin.max-error-length``).
MOST_MESSAGE: Final = 9_000
_NO_KERNEL_CACHE = "no locator available"


def in_one_line(error: BaseException) -> tuple[str, int] | None:
    """The message and the exit code for an error that is reported without a traceback; None for a defect of ours.

    Errors of gnnloom, of storage and of memory are reported in one line, without characters that a terminal would obey.
    An OSError that is about neither a disk nor a path is a defect.
    """
    if isinstance(error, GnnloomError):
        # A message may quote what a file contains, however long that is.
        return shortened(str(error), MOST_MESSAGE), error.exit_code
    reported = _of_the_system(error)
    return None if reported is None else (printable(reported[0]), reported[1])


def _of_the_system(error: BaseException) -> tuple[str, int] | None:
    if is_out_of_memory(error):
        what = str(error).splitlines()[0] if str(error) else "an allocation failed"
        limit = address_space_limit()
        return f"out of memory ({what})" + (f": a process may use only {limit}" if limit else ""), 1
    if isinstance(error, RuntimeError) and _NO_KERNEL_CACHE in str(error):
        return (
            "no writable folder for compiled kernels: not next to the source files, in ~/.cache or in the temporary"
            " folder; set NUMBA_CACHE_DIR to a writable folder"
        ), 1
    return system_error_in_one_line(error) if isinstance(error, OSError) else None


@contextmanager
def needing(name: str, package: str) -> Iterator[None]:
    """Say what to install if an import fails inside the ``with`` block.

    Raises:
        MissingPackageError: an import failed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingPackageError(f"{name} needs {error.name}: `pip install '{package}'`") from error
