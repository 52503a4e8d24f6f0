"""Pickles of others, read without running anything that they name.

A pickle is a program: it names classes and functions and calls them.  Here every admitted name becomes a
:class:`Record`, which only writes down what it was called with; whoever reads the pickle makes arrays from
that, after checking it.  A name that is not admitted is an error that says which.
"""

from __future__ import annotations

import io
import pickle  # noqa: TID251 - to read those of others, without what makes pickles dangerous
from collections.abc import Collection
from typing import Any, BinaryIO, Self

from gnnloom.storage.errors import InputError

#: Longest pickle that is read: what is large in foreign files lies beside the pickle, or is small in all.
MAX_BYTES = 1 << 28
#: Modules that Python 2, and the old protocols, call otherwise.
_NEW_NAMES = {"__builtin__": "builtins", "copy_reg": "copyreg"}


class Record(dict[Any, Any]):
    """What a pickle asked for by an admitted name: its arguments, its state, and the items put into it."""

    name = ""
    args: tuple[Any, ...]
    state: Any

    def __new__(cls, *args: Any) -> Self:
        record = super().__new__(cls)
        record.args, record.state = args, None
        return record

    def __init__(self, *args: Any) -> None:  # noqa: ARG002 - kept by __new__, which some pickles call alone
        super().__init__()

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Reader(pickle._Unpickler):  # noqa: SLF001 - not the one in C: see below
    """Python's own reader, which can reach nothing but :class:`Record`.

    The one in C allocates whatever number of places a pickle's memo asks for, before it looks whether they are filled.
    """

    def __init__(self, stream: io.BytesIO, admitted: Collection[str], where: str) -> None:
        super().__init__(stream, encoding="latin-1")
        self._admitted, self._where = admitted, where
        self._known: dict[str, type[Record]] = {}

    def find_class(self, module: str, name: str, /) -> type[Record]:
        """A class of records of its own for every name, made anew for every pickle."""
        full = f"{_NEW_NAMES.get(module, module)}.{name}"
        if full not in self._admitted:
            raise InputError(
                f"{self._where}: the pickle asks for {_shown(full)}, which such a file may not hold; nothing of"
                " it was run. Save the arrays alone"
            )
        if full not in self._known:
            self._known[full] = type("Record", (Record,), {"name": full})
        return self._known[full]

    def persistent_load(self, pid: Any, /) -> Any:
        """What lies outside the pickle, as it is named there."""
        return pid


def _shown(name: str) -> str:
    """A name from a file that nobody trusts, fit for a terminal."""
    return name if name.isprintable() and len(name) < 200 else ascii(name[:200])


def read_pickle(stream: BinaryIO, where: str, admitted: Collection[str]) -> Any:
    """The contents of a pickle, with a :class:`Record` for each object that is no plain value or container.

    Args:
        where: the file, for messages.
        admitted: full names of the classes and functions that may occur in it.

    Raises:
        InputError: another name occurs, or the pickle is damaged or larger than ``MAX_BYTES``.
    """
    data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InputError(f"{where}: a pickle of more than {MAX_BYTES:,} bytes; save the arrays alone")
    try:
        return _Reader(io.BytesIO(data), admitted, where).load()
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{where}: a damaged pickle, or none ({type(error).__name__}: {error})") from error
