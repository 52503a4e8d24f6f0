"""Labels of text files that are names of classes: these are numbered in the order of their bytes.

Whoever opens a file finds the names by reading it once; readers then look them up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.reading.fields import MOST_FIELDS, chosen_fields
from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.lines import bad_line
from gnnloom.pipeline.sources.reading.numerals import SPACE
from gnnloom.pipeline.sources.reading.text_layout import data_blocks, first_lines, is_number
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import NO_LABEL

#: Most classes that have names.
MOST_NAMES: Final = 1 << 16
#: What stands for no label among names, in lower case.
_UNKNOWN: Final = frozenset({b"", b"-1", b"nan"})
#: Names of a column of labels, in lower case: such a first line is a header, unless later lines have the word as well.
_HEADERS: Final = frozenset({"label", "labels", "class", "classes", "category", "target", "y"})
#: Bytes of text that are split at a time.
_BLOCK_BYTES: Final = 4 << 20


@dataclass(frozen=True)
class WordBlock:
    """Fields of consecutive lines that are not blank.

    Attributes:
        words: the chosen fields of each line, without quotes.
        line_at: (num_lines,) int64 offset of each line in the file's contents, in bytes.
    """

    words: list[list[bytes]]
    line_at: NDArray[np.int64]

    def codes(self, names: tuple[str, ...]) -> NDArray[np.int32]:
        """(num_lines,) int32 number of the class that the last field of each line names."""
        numbers = {name.encode(): number for number, name in enumerate(names)}
        return np.array([numbers.get(words[-1], NO_LABEL) for words in self.words], np.int32)


@dataclass(frozen=True)
class NamedLabels:
    """The field of a file that names the class of each line.

    Attributes:
        header: whether the first line names the columns.
        separator: the byte between fields. After blanks, the last field is the rest of the line: names may have blanks.
        fields: numbers of the fields, of which the last has the classes.
        names: the names, ascending by their bytes.
    """

    file: SourceFile
    header: bool
    separator: int
    fields: tuple[int, ...]
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, file: SourceFile, separator: int, fields: tuple[int, ...]) -> NamedLabels | None:
        """Find the names; None if the labels are numbers.

        Raises:
            InputError: there are too many different names, or one is not UTF-8.
        """
        first, *second = first_lines(file, separator, 2)
        # The first line alone may be a header.
        cells = [line[fields[-1]] if len(line) > fields[-1] else "" for line in (first, *second)]
        if any(not cell or is_number(cell) for cell in cells):
            return None
        header = cells[0].lower() in _HEADERS
        found = cls(file, header, separator, fields)
        names: set[bytes] = set()
        for block in found.blocks():
            names |= {words[-1] for words in block.words}
            if len(names) > MOST_NAMES:
                raise InputError(f"{file.location}: more than {MOST_NAMES:,} different labels; number them first")
        try:
            known = tuple(name.decode() for name in sorted(names) if name.lower() not in _UNKNOWN)
        except UnicodeDecodeError as error:
            raise InputError(f"{file.location}: a label is not UTF-8 ({error})") from error
        # A word that comes again, such as the y of y and n, is a class.
        return cls(file, header and cells[0] not in known, separator, fields, known)

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[WordBlock]:
        """The lines of a range of bytes.

        Raises:
            InputError: a line has too few fields.
        """
        lines, joins = data_blocks(self.file, self.header, start, stop, _BLOCK_BYTES), self.separator == SPACE
        for block in chosen_fields(self.file, lines, bytes([self.separator]), () if joins else self.fields):
            words = [list(map(_unquoted, line.split(b"\t"))) for line in block.text.tobytes().split(b"\n")[:-1]]
            if block.lines is None:
                continue
            for fields, at in zip(words, block.lines[1], strict=True) if joins else ():
                if not self.fields[-1] < len(fields) < MOST_FIELDS:
                    raise bad_line(self.file, int(at), "expected an id and a class name of a few words")
                fields[self.fields[-1] :] = [b" ".join(fields[self.fields[-1] :])]
            yield WordBlock(words, block.lines[1])


def _unquoted(field: bytes) -> bytes:
    return field[1:-1].replace(b'""', b'"') if len(field) > 1 and field[:1] == field[-1:] == b'"' else field


def names_of(sources: Iterable[object]) -> tuple[str, ...]:
    """The names of the classes of the first source that has some."""
    return next((names for source in sources if (names := getattr(source, "class_names", ()))), ())
