"""Reads files that describe a dataset; errors name the place of a fault."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gnnloom.pipeline.ingest.typed.table import Ends, Table, named_relations
from gnnloom.pipeline.sources.reading.files import SourceFile, is_local, open_file
from gnnloom.storage.disk.files import user_path
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.wording import did_you_mean

#: Bytes of a description, at most.
_MOST_BYTES: Final = 16 << 20
#: Formats of pairs of ids without text, and their names in gnnloom.
_BINARY: Final = {"parquet": "parquet", "numpy": "npy"}
_KINDS: Final = {str: "text", int: "a number", list: "a list", dict: "a mapping"}


@dataclass(frozen=True)
class Described:
    """A value of a description.

    Attributes:
        path: the file.
        value: the value itself.
        place: path to the value within the file, such as ``edges[0].files``; empty for the whole file.
    """

    path: Path
    value: Any
    place: str = ""

    def error(self, expected: str) -> InputError:
        """The error for a wrong value."""
        where = f", {self.place}" if self.place else ""
        return InputError(f"{self.path}{where}: expected {expected}, found {str(self.value)[:80]!r}")

    def of(self, kind: type[Any]) -> Any:
        """The value.

        Raises:
            InputError: it has another type.
        """
        if not isinstance(self.value, kind) or (kind is int and isinstance(self.value, bool)):
            raise self.error(_KINDS[kind])
        return self.value

    def has(self, key: str) -> bool:
        """Whether a mapping has a value for a key."""
        return self.of(dict).get(key) is not None

    def __getitem__(self, key: str) -> Described:
        if not self.has(key):
            raise self.error(f"a value for {key!r}")
        return Described(self.path, self.value[key], f"{self.place}.{key}".lstrip("."))

    def items(self) -> Iterator[Described]:
        """The items of a list."""
        for number, item in enumerate(self.of(list)):
            yield Described(self.path, item, f"{self.place}[{number}]")

    def entries(self) -> Iterator[tuple[str, Described]]:
        """The keys and values of a mapping."""
        for key in self.of(dict):
            yield str(key), Described(self.path, self.value[key], f"{self.place}.{key}".lstrip("."))

    def text(self) -> str:
        """A text that is not empty, and can be shown."""
        text: str = self.of(str)
        if not text.strip() or not text.isprintable():
            raise self.error("a name")
        return text

    def count(self) -> int:
        """A number that is not negative."""
        number: int = self.of(int)
        if number < 0:
            raise self.error("a number of 0 or more")
        return number

    def file(self) -> str:
        """The location of a file of the dataset, which the text names from the folder of the description on.

        Raises:
            InputError: the text leads out of this folder.
            NotFoundError: there is no such file.
        """
        given = self.text()
        path = (self.path.parent / given).resolve()
        if Path(given).is_absolute() or not path.is_relative_to(self.path.parent.resolve()):
            raise self.error("a file below the folder of the description")
        if not path.is_file():
            raise NotFoundError(f"{self.path}, {self.place}: the file {path} does not exist")
        return str(path)


def local_path(location: str) -> Path | None:
    """The path of a local file or folder; None for other locations, and where there is nothing."""
    if not is_local(location):
        return None
    path = user_path(location.removeprefix("file://"))
    return path if path.exists() else None


def description_path(location: str, name: str) -> Path | None:
    """The path of a description with a fixed file name, given its folder or the file; None if it does not exist."""
    path = local_path(location)
    path = path / name if path is not None and path.is_dir() else path
    return path if path is not None and path.name == name and path.is_file() else None


def sorted_relations(given: Mapping[Ends, Table]) -> list[tuple[Ends, Table]]:
    """The tables of relations under their valid names, in alphabetical order."""
    named = [(ends, given[triplet]) for triplet, ends in named_relations(list(given)).items()]
    return sorted(named, key=lambda each: each[0][1])


def read_json(path: Path) -> Described:
    """Read a description in JSON.

    Raises:
        InputError: the file is large, or is not JSON.
    """
    try:
        return Described(path, json.loads(read_text(open_file(str(path)))))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: expected JSON ({error})") from error


def read_text(file: SourceFile) -> str:
    """Read a description, which may be compressed.

    Raises:
        InputError: the file is large, or is not UTF-8.
    """
    with file.open() as stream:
        content = stream.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise InputError(f"{file.location}: more than {_MOST_BYTES >> 20} MiB; expected a description of a dataset")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{file.location}: expected text in UTF-8 ({error})") from error


def parse_ends(given: Described, text: str) -> Ends:
    """Source type, relation and target type from ``author:writes:paper``.

    Raises:
        InputError: the text has other parts.
    """
    parts = text.split(":")
    if len(parts) != 3 or not all(map(str.strip, parts)):
        raise given.error("source type, relation and target type with colons between them, such as author:writes:paper")
    source, name, target = map(str.strip, parts)
    return source, name, target


def check_listed(given: Described, ends: Ends, types: Collection[str]) -> None:
    """Check that a description lists both types of a relation.

    Args:
        given: the value that names the relation.

    Raises:
        InputError: the description lacks a type.
    """
    for name in (ends[0], ends[2]):
        if name not in types:
            raise given.error(f"types that the description lists ({did_you_mean(name, sorted(types))})")


def pairs_table(locations: list[str], kind: Described, delimiter: str, counts: tuple[int, ...] = ()) -> Table:
    """Files of pairs of ids in two columns without a header, or in an array.

    Args:
        kind: name of the format of the files: ``csv``, ``parquet`` or ``numpy``.
        delimiter: separator of fields of text.
        counts: number of rows that each file should have.

    Raises:
        InputError: the files have another format.
    """
    name = kind.text().lower()
    if name == "csv":
        how: Mapping[str, Any] = {"header": False, "delimiter": "tab" if delimiter == "\t" else delimiter}
        return Table(tuple(locations), ("1", "2"), format="snap", options=tuple(how.items()), width=2, counts=counts)
    if name in _BINARY:
        return Table(tuple(locations), format=_BINARY[name], counts=counts)
    raise kind.error("csv, parquet or numpy")
