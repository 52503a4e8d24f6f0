"""Graphs that simple readers make of files, which share no code with gnnloom's, and the comparison with gnnloom's.

A reader takes a file literally: the csv module splits lines, headers name columns, words are compared as they are. It
gives a graph as sets that do not depend on how types are called, or nothing if it cannot make sense of the file.
"""

from __future__ import annotations

import csv
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import gnnloom
from gnnloom.storage import TypedGraph

#: Cells without a value.
MISSING = {"", "na", "n/a", "<na>", "nan", "null", "none", "?", "\\n"}
_RETURN = "\ue000"


class UnreadableError(Exception):
    """The simple reader cannot make sense of a file."""


@dataclass
class Graph:
    """A graph without names of types.

    Attributes:
        kinds: the type of each vertex, which stands for the vertices that share it.
        edges: how often each edge occurs: word of the relation, both ends, values.
    """

    kinds: dict[Any, Any] = field(default_factory=dict)
    edges: Counter[tuple[Any, ...]] = field(default_factory=Counter)

    def alike(self) -> tuple[set[frozenset[Any]], Counter[tuple[Any, ...]]]:
        """What two equal graphs share: sets of vertices of one type, and edges."""
        found: dict[Any, set[Any]] = {}
        for vertex, kind in self.kinds.items():
            found.setdefault(kind, set()).add(vertex)
        return {frozenset(each) for each in found.values()}, self.edges


@dataclass(frozen=True)
class TypedInput:
    """An input that is valid before it is damaged.

    Attributes:
        files: text or bytes by name.
        read: the simple reader.
        how: arguments of ``gnnloom.ingest``, in whose texts ``DIR`` stands for the folder.
        values: arrays of edges that are compared.
        by_space: vertices are called by their types, too, as ids of several types are alike.
    """

    files: Mapping[str, str | bytes]
    read: Callable[[Path], Graph]
    how: Mapping[str, Any]
    values: tuple[str, ...] = ()
    by_space: bool = False

    def write(self, folder: Path) -> None:
        """Write the files into a folder."""
        for name, text in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)

    def compare(self, folder: Path) -> None:
        """Store the files of a folder as a graph, and compare it with the simple reader's.

        Raises:
            GnnloomError: gnnloom refuses the files.
            AssertionError: gnnloom's graph differs.
        """
        with tempfile.TemporaryDirectory() as catalog:
            how = {"merge": "keep", "workers": 0, "catalog": catalog, **_within(self.how, folder)}
            dataset = gnnloom.ingest("g", **how)
            found = self._stored(dataset.typed_graph())
        try:
            wanted = self.read(folder)
        except (UnreadableError, IndexError, ValueError, csv.Error) as error:
            raise AssertionError(
                f"the simple reader refuses the files ({error}), and gnnloom stores {found}"
            ) from error
        if found.alike() != wanted.alike():
            raise AssertionError(f"stored {found}, the files have {wanted}")

    def _stored(self, graph: TypedGraph) -> Graph:
        found, names = Graph(), {}
        for each in graph.types:
            ids = graph.ids(each.name)
            own = ids.original_name() if ids.has_names else [str(number) for number in ids.original_id()]
            names[each.name] = [(each.name, vertex) if self.by_space else vertex for vertex in own]
            found.kinds |= dict.fromkeys(names[each.name], each.name)
        for relation in graph.relations:
            first = 0
            for sources, targets, single in relation.edge_blocks():
                columns = [self._column(relation, name, single, first, len(sources)) for name in self.values]
                first += len(sources)
                word = relation.facts.get("word", relation.name)
                for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
                    ends = names[relation.source.name][source], names[relation.target.name][target]
                    found.edges[word, *ends, *(column[number] for column in columns)] += 1
        return found

    @staticmethod
    def _column(relation: Any, name: str, single: Any, first: int, count: int) -> list[Any]:
        if name not in relation.edge_columns:
            return [float(each) for each in single]
        values = relation.column(name, first, first + count)
        if name == "label":
            return [relation.classes[each] if relation.classes else str(each) for each in values]
        if name == "time" and relation.time_unit:
            return [int(each) for each in values.astype(f"M8[{relation.time_unit}]").astype("M8[us]").astype(np.int64)]
        return [float(each) for each in values.reshape(count)]


def _within(value: Any, folder: Path) -> Any:
    """Arguments with the folder in their texts."""
    if isinstance(value, Mapping):
        return {key: _within(each, folder) for key, each in value.items()}
    if isinstance(value, list):
        return [_within(each, folder) for each in value]
    return value.replace("DIR", str(folder)) if isinstance(value, str) else value


# Simple readers


def read_rows(path: Path, between: str = ",") -> list[list[str]]:
    """The rows of a file that are not blank."""
    # The csv module takes a return within a line for its end.
    lines = [line.rstrip("\r").replace("\r", _RETURN) for line in read_lines(path)]
    found = [next(csv.reader([line], delimiter=between), []) for line in lines]
    return [[cell.strip(" \t").replace(_RETURN, "\r") for cell in row] for row in found if "".join(row).strip(" \t")]


def read_pairs(path: Path) -> list[list[str]]:
    """The rows of a file of edges without a header, in which ``#`` begins a comment."""
    return [row for row in read_rows(path) if not row[0].startswith("#")]


def between_blanks(line: str) -> list[str]:
    """The cells of a line between blanks."""
    return [cell for cell in re.split(r"[ \t\r]+", line) if cell]


def read_lines(path: Path) -> list[str]:
    """The lines of a file, with bytes that are not UTF-8 as surrogates."""
    return path.read_bytes().removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").split("\n")


def whole_number(cell: str) -> int:
    found = re.fullmatch(r'"?(\d+)(?:\.0*)?"?', cell, re.ASCII)
    if found is None or int(found[1]) >= 1 << 63:
        raise UnreadableError(f"{cell!r} is not an id")
    return int(found[1])
