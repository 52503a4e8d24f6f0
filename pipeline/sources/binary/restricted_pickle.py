"""Foreign pickles, read without running any function that they name.

A pickle is a program: it names classes and functions and calls them. Here, every allowed name becomes a
:class:`Record`, which only notes the arguments it was called with; the caller checks these and builds arrays from them.
Any other name is an error, and the message names it. Every operation costs memory, and a pickle that takes far more
than its own size is refused while it is read.
"""

from __future__ import annotations

import io
import pickle  # noqa: TID251 - reads foreign pickles without what makes them dangerous
import sys
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, BinaryIO, Self

from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import reason_of

#: Maximum size of a pickle in bytes: the formats that are read store large arrays outside of it, or are small.
MAX_BYTES = 1 << 28
#: Memory in bytes that the objects of a pickle may take in any case, and per byte of the pickle.
_FREE_MEMORY, _MEMORY_PER_BYTE = 32 << 20, 2
#: Greatest number of arguments of a call; torch's and NumPy's functions take up to seven.
_MOST_ARGUMENTS = 16
#: Texts of a key: source type, name and target type of a relation.
_MOST_TEXTS = 3
#: Most bits of an integer, as in NumPy's types. Python hashes and prints longer ones slowly, or not at all.
_INTEGER_BITS = 64
#: Bytes of a place on the stack, and later in a list; and of an entry of a dict, with room to grow.
_PLACE_BYTES, _ENTRY_BYTES = 16, 64
#: Modules that have other names in Python 2 and in the old protocols.
_NEW_NAMES = {"__builtin__": "builtins", "copy_reg": "copyreg"}


class Record(dict[Any, Any]):
    """A pickle's use of an allowed name: the arguments, the state, and the items that it set."""

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


#: Operations of a pickle that are performed, by their names in :mod:`pickle`. Operations that make a value or a
#: container cost its size; operations that rearrange existing values have an upper bound in bytes. All others are
#: refused.
_MADE = (
    "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
    "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "LIST", "EMPTY_DICT", "DICT",
)  # fmt: skip
_ARRANGED = {
    **dict.fromkeys(("PROTO", "STOP", "FRAME", "POP", "POP_MARK", "GLOBAL", "STACK_GLOBAL"), 0),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET", "DUP", "BUILD", "PERSID", "BINPERSID"), _PLACE_BYTES),
    **dict.fromkeys(("MARK", "APPEND", "APPENDS"), 128),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), 160),
    **dict.fromkeys(("SETITEM", "SETITEMS", "INST", "OBJ", "NEWOBJ", "REDUCE"), 512),
}
#: Operations that call something, and the places of keys on the stack before operations that fill a dict.
_CALLS = ("REDUCE", "NEWOBJ")
_KEYS = {"DICT": slice(None, None, 2), "SETITEM": slice(-2, -1), "SETITEMS": slice(None, None, 2)}


class _Reader(pickle._Unpickler):  # noqa: SLF001 - not the one in C: see below
    """The reader written in Python, restricted to :class:`Record`.

    The reader in C allocates any number of memo slots that the pickle asks for, before it checks that they are used.
    """

    stack: list[Any]

    def __init__(self, content: bytes, admitted: Collection[str], where: str, remedies: Mapping[str, str]) -> None:
        super().__init__(io.BytesIO(content), encoding="latin-1")
        self._admitted, self._where, self._remedies = admitted, where, remedies
        self._known: dict[str, type[Record]] = {}
        self._memory_left = _FREE_MEMORY + _MEMORY_PER_BYTE * len(content)

    def spend(self, num_bytes: int) -> None:
        """Count memory that an operation takes.

        Raises:
            InputError: the pickle takes far more than its size.
        """
        self._memory_left -= num_bytes
        if self._memory_left < 0:
            raise InputError(f"{self._where}: a pickle that takes far more memory than its size; save only the arrays")

    def find_class(self, module: str, name: str, /) -> type[Record]:
        """A separate class of records for every name, created anew for every pickle."""
        full = f"{_NEW_NAMES.get(module, module)}.{name}"
        # The only way for a pickle to reach code: names that are not listed are refused before anything is looked up.
        if full not in self._admitted:
            known = (remedy for begin, remedy in self._remedies.items() if full.startswith(begin))
            raise InputError(
                f"{self._where}: the pickle asks for {_shown(full)}, which is not allowed here; nothing was run."
                f" {next(known, 'Save only the arrays')}"
            )
        if full not in self._known:
            self._known[full] = type("Record", (Record,), {"name": full})
        return self._known[full]

    def persistent_load(self, pid: Any, /) -> Any:
        """A reference to data outside of the pickle, as the pickle spells it."""
        return pid

    def check_arguments(self) -> None:
        """Refuse the arguments of a call, on the stack, if they are many or no tuple."""
        # A tuple that the pickle names again and again would be copied with every call.
        arguments = self.stack[-1]
        if not isinstance(arguments, tuple) or len(arguments) > _MOST_ARGUMENTS:
            raise TypeError(f"a call without a tuple of at most {_MOST_ARGUMENTS} arguments")

    def check_keys(self, keys: list[Any]) -> None:
        """Count the entries of a dict, and refuse keys other than text, integers and tuples of texts."""
        self.spend(_ENTRY_BYTES * len(keys))
        # Hashing a deeply nested tuple overflows the interpreter's stack, and tuples of numbers can be made to collide.
        if not all(isinstance(key, str | int) or _are_texts(key) for key in keys):
            raise TypeError("a dict with keys other than text, integers and tuples of texts")


def _are_texts(key: Any) -> bool:
    """Whether a key is a tuple of texts, as PyG calls a relation."""
    return type(key) is tuple and len(key) <= _MOST_TEXTS and all(isinstance(each, str) for each in key)


def _operation(name: str) -> tuple[int, Callable[[_Reader], None]]:
    """The code of an operation, and the function that performs it and counts its memory."""
    code = getattr(pickle, name)[0]
    method = pickle._Unpickler.dispatch[code].__name__  # noqa: SLF001

    def check(reader: _Reader) -> None:
        if name in _CALLS:
            reader.check_arguments()
        elif name in _KEYS:
            reader.check_keys(reader.stack[_KEYS[name]])

    def make(reader: _Reader) -> None:
        check(reader)
        getattr(reader, method)()
        made = reader.stack[-1]
        if isinstance(made, int) and made.bit_length() > _INTEGER_BITS:
            raise ValueError(f"an integer of more than {_INTEGER_BITS} bits")
        reader.spend(_PLACE_BYTES + sys.getsizeof(made))

    def arrange(reader: _Reader) -> None:
        reader.spend(_ARRANGED[name])
        check(reader)
        getattr(reader, method)()

    return code, make if name in _MADE else arrange


_Reader.dispatch = dict(map(_operation, (*_MADE, *_ARRANGED)))  # type: ignore[arg-type]


def _shown(name: str) -> str:
    """A name from an untrusted file, made safe for a terminal."""
    return name if name.isprintable() and len(name) < 200 else ascii(name[:200])


def read_pickle(
    stream: BinaryIO,
    where: str,
    admitted: Collection[str],
    most: int = MAX_BYTES,
    skipped: int = 0,
    remedies: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Read a pickle, with a :class:`Record` for each object that is not a plain value or container.

    Args:
        where: name of the file, for messages.
        admitted: full names of the allowed classes and functions.
        most: bytes that it may have.
        skipped: pickles that precede it.
        remedies: what the error for a name that is not allowed recommends, by the beginning of the name.

    Raises:
        InputError: the pickle contains another name, is damaged, is larger than ``most``, or takes far more memory than
            its size.
    """
    data = stream.read(most + 1)
    if len(data) > most:
        raise InputError(f"{where}: a pickle of more than {most:,} bytes; save only the arrays")
    try:
        reader = _Reader(data, admitted, where, remedies)
        for _ in range(skipped):
            reader.load()
        return reader.load()
    except InputError:
        raise
    # A damaged pickle can make the reader raise nearly any exception.
    except Exception as error:
        raise InputError(f"{where}: not a pickle, or a damaged one ({reason_of(error)})") from error
