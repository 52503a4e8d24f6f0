"""Vertex names, which a source gives if its ids are not numbers.

A name is 1 to ``LONGEST_NAME`` bytes of UTF-8. Names are compared byte by byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.source import EdgeSource, SourceRange

#: Maximum length of a name in bytes.
LONGEST_NAME: Final = 1 << 16

#: The last character of ASCII, and a blank.
_LAST_ASCII, _BLANK = 0x7F, 0x20
#: Characters of a name that nobody sees: zero bytes and byte order marks, and at an end also blanks and joiners.
_HIDDEN: Final = re.compile("[\x00\ufeff]|^[\\s\u200b-\u200f\u2060]|[\\s\u200b-\u200f\u2060]$")
#: Bytes of the names at the beginning of a column that are judged.
_BEGINNING: Final = 1 << 20
#: Characters of a name that a message shows.
_SHOWN: Final = 60
#: End of a message about an id that is not a number.
HINT: Final = "; if ids are names, add `--ids names`"


@dataclass(frozen=True)
class Names:
    """Concatenated names: name k is ``text[offset[k]:offset[k + 1]]``.

    Attributes:
        offset: (num_names + 1,) int64, starting at 0.
        text: (num_bytes,) uint8.
    """

    offset: NDArray[np.int64]
    text: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.offset) - 1

    def __getitem__(self, some: slice) -> Names:
        start, stop, _ = some.indices(len(self))
        offset = self.offset[start : stop + 1]
        return Names(offset - offset[0], self.text[offset[0] : offset[-1]])

    def __iter__(self) -> Iterator[bytes]:
        return (self.name(number) for number in range(len(self)))

    def name(self, number: int) -> bytes:
        """The bytes of one name."""
        return self.text[self.offset[number] : self.offset[number + 1]].tobytes()

    def beginning(self) -> Names:
        """The first names, of at most 1 MiB in total, but at least one."""
        return self[: max(1, int(np.searchsorted(self.offset, _BEGINNING, side="right")) - 1)]

    def to_arrow(self) -> Any:
        """An Arrow large binary array that shares the memory."""
        import pyarrow as pa  # noqa: PLC0415 - only names need it

        buffers = [None, pa.py_buffer(self.offset), pa.py_buffer(self.text)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(self), buffers)

    @classmethod
    def from_arrow(cls, array: Any) -> Names:
        """Wrap an Arrow large binary or large string array without nulls; shares its memory."""
        _, offset_buffer, text_buffer = array.buffers()
        count = len(array) + 1
        if offset_buffer is None or not len(array):
            return cls(np.zeros(count, np.int64), np.empty(0, np.uint8))
        offset = np.frombuffer(offset_buffer, np.int64)[array.offset : array.offset + count]
        text = np.empty(0, np.uint8) if text_buffer is None else np.frombuffer(text_buffer, np.uint8)
        return cls(offset - offset[0], text[offset[0] : offset[-1]])

    @classmethod
    def of_values(cls, values: Any) -> Names:
        """Convert a NumPy or Arrow array of text or integers; the name of an integer is its digits."""
        import pyarrow as pa  # noqa: PLC0415 - only names need it

        column = pa.array(values) if isinstance(values, np.ndarray) else values
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_integer(column.type):
            column = column.cast(pa.string())
        return cls.from_arrow(column.cast(pa.large_binary()))

    def first_wrong(self, *, is_id: bool = True) -> tuple[int, str]:
        """Number of the first invalid name and what is wrong with it; -1 and an empty text if all are valid.

        Args:
            is_id: a name is an id, with characters that a person sees at both ends. Otherwise it may be any text.
        """
        length = np.diff(self.offset)
        wrong = (length == 0) | (length > LONGEST_NAME)
        limit = int(np.argmax(wrong)) if wrong.any() else len(self)
        text = self.text[: self.offset[limit]]
        # ASCII is valid UTF-8, so names are decoded one by one only if a byte is beyond it.
        if int(text.max(initial=0)) > _LAST_ASCII or (is_id and self._has_blanks(limit)):
            for number in range(limit):
                if fault := _text_fault(self.name(number), is_id=is_id):
                    return number, fault
        if limit == len(self):
            return -1, ""
        return limit, name_fault(int(length[limit]))

    def _has_blanks(self, limit: int) -> bool:
        """Whether one of the first ``limit`` names begins or ends with a blank, or has a control character."""
        text = self.text[: self.offset[limit]]
        if not len(text):
            return False
        ends = text[self.offset[:limit]], text[self.offset[1 : limit + 1] - 1]
        return int(text.min()) < _BLANK or any(bool((each == _BLANK).any()) for each in ends)


def _text_fault(name: bytes, *, is_id: bool) -> str:
    """The fault of the bytes of a name, as text; empty if the bytes are valid."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return (
            "expected a name in UTF-8, found other bytes; convert the file, for example with iconv -f"
            " WINDOWS-1252 -t UTF-8"
        )
    hidden = _HIDDEN.search(text) if is_id else None
    if hidden is None:
        return ""
    code = f"U+{ord(hidden[0]):04X}"
    return (
        f"{text[:_SHOWN]!r} has a space at an end or an invisible character ({code}), and would be another vertex"
        " than the name without it; remove it from the names"
    )


def name_fault(length: int) -> str:
    """Description of the fault of a name of an invalid length."""
    if not length:
        return "expected a vertex name, found an empty one"
    return f"expected a vertex name of at most {LONGEST_NAME:,} bytes, found a longer one"


@dataclass(frozen=True)
class NameChunk:
    """Edges ``source[k] -> target[k]`` between names, in the order of the source.

    Attributes:
        weight: (num_edges,) float32, or None.
        time: (num_edges,) float64, or None; edges have no weights along with their times.
    """

    source: Names
    target: Names
    weight: NDArray[np.float32] | None = None
    time: NDArray[np.float64] | None = None

    @classmethod
    def valued(cls, source: Names, target: Names, values: NDArray[Any] | None, *, times: bool) -> NameChunk:
        """Edges whose values, if there are any, are times or weights."""
        return cls(source, target, None, values) if times else cls(source, target, values)

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, some: slice) -> NameChunk:
        weight = None if self.weight is None else self.weight[some]
        time = None if self.time is None else self.time[some]
        return NameChunk(self.source[some], self.target[some], weight, time)


@runtime_checkable
class NamedEdgeSource(EdgeSource, Protocol):
    """A source that can give its ids as names; its ``read`` refuses ids that are not numbers below 2^63."""

    def begins_with_names(self) -> bool:
        """Whether the ids at the beginning of a file are names rather than numbers.

        Reads a limited number of bytes of each file.

        Raises:
            InputError: the beginning of a file leaves open what it is, such as a first line that may be a header.
        """
        ...

    def as_named(self) -> Self:
        """The same source with all ids as names, including ids that look like numbers."""
        ...

    def read_names(self, span: SourceRange, /) -> Iterator[NameChunk]:
        """Read one range in chunks of a few megabytes.

        Raises:
            InputError: the file contains something that is not an edge, or a name is empty, too long or not UTF-8.
        """
        ...
