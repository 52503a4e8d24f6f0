"""Labels of text files that are names of classes: these are numbered in the order of their bytes.

Opening a file reads it once to find the names; readers then look names up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.reading.fields import MOST_FIELDS, chosen_fields
from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.lines import bad_line
from gnnloom.pipeline.sources.reading.text_layout import Row, Sample, is_number, names_ids, row_blocks
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import NO_LABEL

#: Most classes that have names.
MOST_NAMES: Final = 1 << 16
#: Words for "no label" among names, in lower case.
UNKNOWN: Final = frozenset({b"", b"-1", b"nan", b"na", b"n/a", b"<na>", b"null", b"none", b"?", b"\\n"})
#: Names of a column of labels, in lower case: such a first line is a header, unless later lines have the word as well.
_HEADERS: Final = frozenset({
    "label", "labels", "class", "classes", "category", "target", "y", "community", "communities", "cluster",
    "department",
})  # fmt: skip
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
        separator: text between fields. If it is a blank, the last field is the rest of the line: names may have blanks.
        fields: numbers of the fields; the last field has the classes.
        first_row: offset of the first row in the file's contents, in bytes.
        names: name of each class, by number: ascending by their bytes, or as in other vertex data.
        is_like: the names come from other vertex data.
    """

    file: SourceFile
    header: bool
    separator: bytes
    fields: tuple[int, ...]
    first_row: int = 0
    names: tuple[str, ...] = ()
    is_like: bool = False

    def like(self, names: tuple[str, ...], where: str) -> NamedLabels:
        """The same labels with given numbers of the classes.

        Args:
            names: name of each class, by number.
            where: vertex data with these classes, for messages.

        Raises:
            InputError: a label is none of the classes.
        """
        unknown = [name for name in self.names if name not in names]
        if unknown:
            raise InputError(f"{self.file.location}: label {unknown[0]!r} is not one of the classes in {where}")
        return replace(self, names=names, is_like=True)

    @property
    def stated(self) -> dict[str, str]:
        """JSON for keys: a digest of the names, unless they follow from the file."""
        content = "\n".join(self.names).encode()
        return {"like": hashlib.sha256(content).hexdigest()[:16]} if self.is_like else {}

    @classmethod
    def of(
        cls, file: SourceFile, sample: Sample, fields: tuple[int, ...], header: bool | None = None
    ) -> NamedLabels | None:
        """Find the names; None if the labels are numbers.

        Args:
            sample: first lines of the file.
            fields: as the attribute.
            header: whether the first line names the columns; None if the user did not say.

        Raises:
            InputError: there are too many different names, one is not UTF-8, or the first line may be a header.
        """
        last, joins = fields[-1], sample.separator == b" "
        rows = [row for row in sample.rows if len(row.fields) > last]
        cells = [" ".join(row.fields[last:]) if joins else row.fields[last] for row in rows]
        known = [cell for cell in cells if cell.lower().encode() not in UNKNOWN]
        words = [cell for cell in known if not is_number(cell)]
        # The first line alone may be a header. A few words among numbers are reported by the reader of the numbers.
        if not words or (words == cells[:1] and len(cells) > 1) or 2 * len(words) <= len(known):
            return None
        first, word = rows[0], cells[0]
        below = cls(file, True, sample.separator, fields, first.stop)
        names: set[bytes] = set()
        for block in below.blocks():
            names |= {words[-1] for words in block.words}
            if len(names) > MOST_NAMES:
                raise InputError(f"{file.location}: more than {MOST_NAMES:,} different labels; number them first")
        if header is None:
            header = cls._begins_with_header(file, first, word, word.encode() in names, fields)
        if not header:
            names.add(word.encode())
        try:
            found = tuple(name.decode() for name in sorted(names) if name.lower() not in UNKNOWN)
        except UnicodeDecodeError as error:
            raise InputError(f"{file.location}: a label is not UTF-8 ({error})") from error
        return replace(below, header=header, first_row=first.stop if header else first.start, names=found)

    @staticmethod
    def _begins_with_header(file: SourceFile, first: Row, word: str, occurs: bool, fields: tuple[int, ...]) -> bool:
        """Whether the first line names the columns.

        Args:
            word: its label.
            occurs: whether another line has this label, such as the y of y and n.
        """
        ids = [first.fields[number] for number in fields[:-1]]
        if occurs or word.lower().encode() in UNKNOWN or is_number(word) or any(map(is_number, ids)):
            return False
        if is_label(word) or any(map(names_ids, ids)):
            return True
        raise InputError(
            f"{file.location}, line {first.line}: no other line has the label {word!r}; pass `--header` if it names the"
            " column, or `--no-header` if it is a class"
        )

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[WordBlock]:
        """The lines of a range of bytes.

        Raises:
            InputError: a line has too few fields.
        """
        lines, joins = row_blocks(self.file, self.first_row, start, stop, _BLOCK_BYTES), self.separator == b" "
        for block in chosen_fields(self.file, lines, self.separator, () if joins else self.fields, comments=b""):
            words = [list(map(_unquoted, line.split(b"\t"))) for line in block.text.tobytes().split(b"\n")[:-1]]
            if block.lines is None:
                continue
            for fields, at in zip(words, block.lines[1], strict=True) if joins else ():
                if not self.fields[-1] < len(fields) < MOST_FIELDS:
                    raise bad_line(self.file, int(at), "expected an id and a class name of a few words")
                fields[self.fields[-1] :] = [b" ".join(fields[self.fields[-1] :])]
            yield WordBlock(words, block.lines[1])


def is_label(word: str) -> bool:
    """Whether a word is a usual name of columns of labels."""
    return word.lower() in _HEADERS


def is_heading(word: str) -> bool:
    """Whether a word is a usual name of columns of labels or ids."""
    return is_label(word) or names_ids(word)


def _unquoted(field: bytes) -> bytes:
    return field[1:-1].replace(b'""', b'"') if len(field) > 1 and field[:1] == field[-1:] == b'"' else field


def names_of(sources: Iterable[object]) -> tuple[str, ...]:
    """The names of the classes, from the first source that has names."""
    return next((names for source in sources if (names := getattr(source, "class_names", ()))), ())
