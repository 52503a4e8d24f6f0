"""The kind of each row of a table: a word in one of its columns, which names a relation or a type of vertices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.names import NameChunk, NamedEdgeSource, Names
from gnnloom.pipeline.sources.source import EdgeChunk, SourceRange
from gnnloom.storage.errors import InputError

#: Distinct words of a column, at most: each becomes a relation with arrays of its own, or a type.
MOST_KINDS: Final = 1 << 14


@dataclass(frozen=True)
class KindColumn:
    """A column of words; implements :class:`~gnnloom.pipeline.sources.source.Surveyed`.

    Attributes:
        rows: the words, as the targets of edges from an id of the row.
        location: the table, for messages.
        column: name or number of the column.
        several: separator of words in a cell, whose first word counts; empty if a cell is one word.
        takes_first: the first word of a vertex counts if its rows have several; otherwise they are an error.
        before: separator that ends the word at the beginning of a cell; empty if the cell has nothing else.
        hint: end of the message about a vertex with several words.
        names: the distinct words, ascending; None before they are known.
    """

    rows: NamedEdgeSource
    location: str
    column: str
    several: str = ""
    takes_first: bool = False
    before: str = ""
    hint: str = ""
    names: tuple[str, ...] | None = None

    def identity(self) -> dict[str, Any]:
        """JSON facts that determine the words."""
        return {"table": self.rows.identity(), **self._how()}

    def _how(self) -> dict[str, Any]:
        how = {"several": self.several, "first": self.takes_first, "before": self.before}
        return {name: value for name, value in how.items() if value}

    def surveys(self) -> Sequence[SourceRange]:
        return () if self.names is not None else self.rows.ranges()

    def survey(self, span: SourceRange) -> list[str]:
        """The distinct words of a range, ascending.

        Raises:
            InputError: the table cannot be read, or has too many different words to be kinds.
        """
        found: set[str] = set()
        for chunk in self.rows.read_names(span):
            found.update(self._encoded(chunk.target, span)[0])
            self._check(found)
        return sorted(found)

    def with_surveys(self, found: Sequence[Sequence[str]]) -> KindColumn:
        names = set(chain.from_iterable(found))
        self._check(names)
        return replace(self, names=tuple(sorted(names)))

    def _check(self, names: set[str]) -> None:
        if len(names) > MOST_KINDS:
            raise InputError(
                f"{self.location}: more than {MOST_KINDS:,} different words, such as {min(names)!r}, in the column of"
                " relations or types; name another column"
            )

    def read(self, span: SourceRange) -> Iterator[NDArray[np.int32]]:
        """Yield (num_rows,) int32 positions in :attr:`names`, one per row, for some rows per step."""
        number = {name: at for at, name in enumerate(self.names or ())}
        for chunk in self.rows.read_names(span):
            words, indices = self._encoded(chunk.target, span)
            yield np.array([number[word] for word in words], np.int32)[indices]

    def _encoded(self, names: Names, span: SourceRange) -> tuple[list[str], NDArray[np.int32]]:
        """Different words of some cells, and (num_cells,) int32 number of the word of each cell."""
        encoded = names.to_arrow().dictionary_encode()
        # Names are UTF-8, which their reader checks.
        words = [cell.decode() for cell in encoded.dictionary.to_pylist()]
        if self.before:
            bare = next((word for word in words if not word.partition(self.before)[1]), None)
            if bare is not None:
                raise self._without_separator(bare, span)
            words = [word.split(self.before, 1)[0] for word in words]
        if self.several:
            words = [word.split(self.several, 1)[0] for word in words]
        indices: NDArray[np.int32] = encoded.indices.to_numpy()
        return words, indices

    def _without_separator(self, word: str, span: SourceRange) -> InputError:
        """The error for an id that does not begin with a type; names its line, if the reader of the table finds it."""
        reason = f"{word!r} has no type before {self.before!r}; add `--header` if the first line names the columns"
        finds = getattr(self.rows, "id_error", None)
        found: InputError | None = None if finds is None else finds(span, word, (1,), reason)
        return found or InputError(f"{self.location}: {reason}")


Chunk = TypeVar("Chunk", EdgeChunk | NameChunk, NameChunk)
#: Kinds of some rows: their numbers, or their words.
Kinds = TypeVar("Kinds", NDArray[np.int32], NameChunk)


def with_kinds(chunks: Iterator[Chunk], kinds: Iterator[Kinds], location: str) -> Iterator[tuple[Chunk, Kinds]]:
    """Put rows and their kinds together, which two readers of the same range give in chunks of different sizes.

    Args:
        location: the table, for messages.

    Raises:
        InputError: one of the readers takes a line for a comment that the other one takes for a row.
    """
    left: Kinds | None = None
    for chunk in chunks:
        at, count = 0, len(chunk.source)
        while at < count:
            while left is None or not len(left):
                left = next(kinds, None)
                if left is None:
                    raise _unequal(location)
            step = min(count - at, len(left))
            yield chunk[at : at + step], left[:step]
            at, left = at + step, left[step:]
    if (left is not None and len(left)) or any(len(found) for found in kinds):
        raise _unequal(location)


def _unequal(location: str) -> InputError:
    return InputError(
        f"{location}: a line between the rows may be a comment; say so with `--comment '#'`, or `--comment none` if it"
        " is a row"
    )
