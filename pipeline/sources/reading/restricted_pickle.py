"""Foreign pickles, read without running anything that they name.

A pickle is a program: it names classes and functions and calls them. Here, every allowed name becomes a
:class:`Record`, which only notes the arguments it was called with; the caller checks these and builds arrays from them.
Any other name is an error, and the message names it.
"""

from __future__ import annotations

import io
import pickle  # noqa: TID251 - reads foreign pickles without what makes them dangerous
from collections.abc import Collection
from typing import Any, BinaryIO, Self

from gnnloom.storage.errors import InputError

#: Maximum size of a pickle in bytes: the formats that are read store large arrays outside of it, or are small.
MAX_BYTES = 1 << 28
#: Modules that have other names in Python 2 and in the old protocols.
_NEW_NAMES = {"__builtin__": "builtins", "copy_reg": "copyreg"}


class Record(dict[Any, Any]):
    """What a pickle did with an allowed name: the arguments, the state, and the items that it set."""

    name = ""
    args: tuple[Any, ...]
    state: Any

    def __new__(cls, *args: Any) -> Self:
        record = super().__new__(cls)
        record.args, record.state = args, None
        return record

    def __init__(self, *args: Any) -> None:  # noqa: ARG002 - stored by __new__, which some pickles call alone
        super().__init__()

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Reader(pickle._Unpickler):  # noqa: SLF001 - not the one in C: see below
    """The reader written in Python, restricted to :class:`Record`.

    The reader in C allocates as many memo slots as the pickle asks for, before it checks that they are used.
    """

    def __init__(self, stream: io.BytesIO, admitted: Collection[str], where: str) -> None:
        super().__init__(stream, encoding="latin-1")
        self._admitted, self._where = admitted, where
        self._known: dict[str, type[Record]] = {}

    def find_class(self, module: str, name: str, /) -> type[Record]:
        """A separate class of records for every name, created anew for every pickle."""
        full = f"{_NEW_NAMES.get(module, module)}.{name}"
        # The only way for a pickle to reach code: names that are not listed are refused before anything is looked up.
        if full not in self._admitted:
            raise InputError(
                f"{self._where}: the pickle asks for {_shown(full)}, which is not allowed here; nothing was run."
                " Save only the arrays"
            )
        if full not in self._known:
            self._known[full] = type("Record", (Record,), {"name": full})
        return self._known[full]

    def persistent_load(self, pid: Any, /) -> Any:
        """A reference to data outside of the pickle, as the pickle spells it."""
        return pid


def _shown(name: str) -> str:
    """A name from an untrusted file, made safe for a terminal."""
    return name if name.isprintable() and len(name) < 200 else ascii(name[:200])


def read_pickle(stream: BinaryIO, where: str, admitted: Collection[str]) -> Any:
    """Read a pickle, with a :class:`Record` for each object that is not a plain value or container.

    Args:
        where: name of the file, for messages.
        admitted: full names of the allowed classes and functions.

    Raises:
        InputError: the pickle contains another name, is damaged, or is larger than ``MAX_BYTES``.
    """
    data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InputError(f"{where}: a pickle of more than {MAX_BYTES:,} bytes; save only the arrays")
    try:
        return _Reader(io.BytesIO(data), admitted, where).load()
    except InputError:
        raise
    # A damaged pickle can make the reader raise nearly any exception.
    except Exception as error:
        raise InputError(f"{where}: not a pickle, or a damaged one ({type(error).__name__}: {error})") from error
