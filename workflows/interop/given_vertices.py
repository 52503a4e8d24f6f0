"""Pairs and vertices that a user's file names by the ids of the source, as vertices of the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import dropwhile
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnnloom.pipeline.ingest.tables.lookup import VertexBuckets, VertexLookup, id_bytes
from gnnloom.pipeline.links.given.id_lists import IdRows, PairList
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.sources.reading.files import open_file
from gnnloom.pipeline.sources.reading.text_layout import UNSTATED, Sample, Stated, row_blocks, split_fields
from gnnloom.pipeline.sources.understood import SHOWN_ROWS, Understood
from gnnloom.pipeline.sources.vertex_data.cells import CellTable, column_name
from gnnloom.pipeline.sources.vertex_data.table_columns import (
    choose,
    column_list,
    is_parquet,
    open_table,
    split_location,
)
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import counted, shell_command

#: Ids of the vertices that may be sources of pairs, and targets.
Ends = tuple[SourceIds, SourceIds]
#: Most vertices whose ids are in memory at a time; fewer if they are long.
_AT_ONCE: Final = 1 << 22
#: Ids of pairs that are looked up at a time, an even number.
_IDS: Final = 1 << 18
#: Lines of a list of vertices that are read at a time.
_LINES: Final = 1 << 16
#: Characters that begin comments, and a separator that no line has, so that it is one field.
_SIGNS: Final = ("#", "%")
_NO_SEPARATOR: Final = b"\x1f"


def open_pairs(path: Path, header: bool | None = None) -> PairList:
    """Open a file of pairs, in any format of edges, whose further columns are ignored.

    ``payments.csv:account,shop`` names the columns of both ends; otherwise, they are the first two or have usual names.

    Args:
        header: whether the first line of text names the columns; by default, if it is recognized.

    Raises:
        NotFoundError: there is no such file.
        InputError: it has another format, or nothing in it; or other than two columns are named.
    """
    location, columns = split_location(str(path))
    if columns and len(columns) != 2:
        raise InputError(f"{path}: expected two columns of ids, of the sources and the targets, found {len(columns)}")
    given: dict[str, Any] = {} if header is None else {"header": header}
    given |= {"columns": column_list(columns)} if columns else {"extra_columns": True}
    return PairList.open("pairs", location, None, given)


def read_pairs(ends: Ends, pairs: Path | ArrayLike, header: bool | None = None) -> Iterator[NDArray[np.int64]]:
    """Read pairs, some at a time, in their order.

    Args:
        ends: ids of the vertices that may be sources, and targets.
        pairs: a file, or (num_pairs, 2) ids of the source: an array, a list or a data frame.
        header: as for :func:`open_pairs`.

    Yields:
        (num_pairs, 2) int64 sources and targets.

    Raises:
        NotFoundError: there is no such file.
        InputError: something in it is not a pair of ids, or an id is not one of the graph.
    """
    if not isinstance(pairs, Path):
        yield find_pairs(ends, pairs)
        return
    given, finder, row = open_pairs(pairs, header), _PairFinder(ends), 0
    for span in given.ranges():
        for rows in given.read(span, names=any(each.has_names for each in ends)):
            # Formats read many rows at a time, and ids as text take much memory.
            for start in range(0, len(rows.ids), _IDS):
                some = IdRows(rows.ids[start : start + _IDS]).as_names()
                try:
                    found = finder.find(some, partial(_row_of, pairs, row))
                except InputError as error:
                    is_first = not row and bool((finder.places(some[:2]) < 0).any())
                    hint = given.header_hint
                    if any(each.facts.get("ignored") for each in given.understood(names=True)):
                        named = f"{pairs.name}:SOURCE,TARGET"
                        hint += f"; to read other columns, name them, as in `{shell_command(named)}`"
                    raise InputError(f"{error}{hint if is_first else ''}") from error
                yield found
                row += len(found)


def _row_of(path: Path, first: int, at: int) -> str:
    return f"{path}, row {first + at // 2:,}"


def understood_vertices(graph: SourceIds, path: Path) -> Understood:
    """Describe how :func:`read_vertices` reads a file, judging by its first lines.

    Raises:
        NotFoundError: there is no such file.
        InputError: it is not text, or has no such column.
    """
    kind = "names" if graph.has_names else "numbers"
    if (found := _open_column(path)) is not None:
        table, column = found
        facts, how = {"comments": 0, "ids": kind}, f"a table, ids of vertices in column {column_name(table, column)}"
        rows = tuple((cell,) for cell in table.first_cells(column)[1][:SHOWN_ROWS])
        sentences = how, f"ids are {kind}, as in the graph"
        return Understood(table.file.location, "table", facts, sentences, "", ("id",), rows, graph.has_names)
    sample, finder = Sample.of(open_file(str(path)), Stated(separator=_NO_SEPARATOR)), _VertexFinder(graph)
    known = finder.places(_names(sample.comments)) >= 0 if graph.has_names and sample.comments else np.zeros(1, bool)
    comments = int(np.argmax(known)) if known.any() else len(sample.comments)
    first = "text, the id of a vertex in each line"
    first += f"; {counted(comments, 'comment')} before the first" if comments else ""
    rows = tuple((row.fields[0],) for row in sample.rows[:SHOWN_ROWS])
    facts = {"comments": comments, "ids": kind}
    sentences = first, f"ids are {kind}, as in the graph"
    return Understood(str(path), "text", facts, sentences, "", ("id",), rows, graph.has_names)


def read_vertices(graph: SourceIds, path: Path) -> NDArray[np.int64]:
    """Read a text file with the id of a vertex in each line, perhaps in quotes; or a column of a table.

    ``users.parquet:user_id`` and ``users.csv:user_id`` name a column, and a Parquet file alone for its first one.
    Blank lines of text are left out. As in files of edges, lines that begin with # or % are comments before the first
    id, and among numbers anywhere. A line that is the name of a vertex is never a comment.

    Returns:
        (num_ids,) int64 vertices, in the order of the file.

    Raises:
        NotFoundError: there is no such file.
        InputError: a line or cell is not the id of a vertex of the graph, or there is none; or there is no such column.
    """
    if (column := _open_column(path)) is not None:
        return _read_column(graph, *column)
    finder, parts, begun, number = _VertexFinder(graph), [np.empty(0, np.int64)], False, 1
    file = open_file(str(path))
    for _, block in row_blocks(file, 0):
        lines = block.tobytes().decode("utf-8", "replace").split("\n")[:-1]
        for first in range(0, len(lines), _LINES):
            ids = {number + at: _id_of(text) for at, text in enumerate(lines[first : first + _LINES]) if text.strip()}
            number += len(lines[first : first + _LINES])
            if not graph.has_names:
                ids = {line: text for line, text in ids.items() if text[:1] not in _SIGNS}
            elif not begun:
                ids = _without_comments(ids, finder)
            if ids:
                try:
                    parts.append(finder.find(_names(ids.values()), partial(_line_of, path, list(ids))))
                except InputError as error:
                    named = f"{path.name}:COLUMN"
                    hint = f"; if the file is a table, name its column of ids, as in `{shell_command(named)}`"
                    raise InputError(f"{error}{'' if begun else hint}") from error
                begun = True
    found = np.concatenate(parts)
    if not len(found):
        raise InputError(f"{path}: no vertices; expected the id of one in each line")
    return found


def _open_column(path: Path) -> tuple[CellTable, int] | None:
    """The table that a path names with a column, or that is Parquet, and the number of the column; None for others."""
    location, columns = split_location(str(path))
    if not columns and not is_parquet(location):
        return None
    if len(columns) > 1:
        raise InputError(f"{path}: expected one column of ids, found {len(columns)}")
    table = open_table(location, columns, UNSTATED, "id")
    return table, choose(table, columns or ("1",))[0]


def _read_column(graph: SourceIds, table: CellTable, column: int) -> NDArray[np.int64]:
    """(num_rows,) int64 vertices whose ids a column has; raises as :func:`read_vertices` does."""
    finder, parts = _VertexFinder(graph), [np.empty(0, np.int64)]
    for span in table.ranges():
        for block in table.read(span, [column]):
            for piece in block.pieces(1):
                ids = piece.columns[0].words()
                found = finder.places(ids)
                for row in np.flatnonzero(found < 0)[:1].tolist():
                    raise table.error(int(piece.at[row]), column, finder.expected(ids, row))
                parts.append(found)
    return np.concatenate(parts)


def find_vertices(graph: SourceIds, what: str, ids: ArrayLike) -> NDArray[np.int64]:
    """The vertices of ids that are in memory.

    Args:
        what: name of the ids, for messages.
        ids: numbers or names, as in the source, in an array of any shape.

    Returns:
        Vertices, in an array of the same shape.

    Raises:
        InputError: an id is not one of the graph.
    """
    given = np.asarray(ids)
    texts = _names(map(str, given.reshape(-1).tolist()))
    return _VertexFinder(graph).find(texts, lambda at: f"{what}, number {at:,}").reshape(given.shape)


def are_texts(ids: ArrayLike) -> bool:
    """Whether ids in memory are texts, such as names, and not numbers."""
    return np.asarray(ids).dtype.kind in "UTO"


def find_pairs(ends: Ends, ids: ArrayLike) -> NDArray[np.int64]:
    """(num_pairs, 2) int64 pairs whose ids are in memory; arguments and errors as for :func:`find_vertices`."""
    given = np.asarray(ids)
    if given.ndim != 2 or given.shape[1] != 2:
        raise InputError(f"pairs: expected (num_pairs, 2) ids, found shape {given.shape}")
    texts = _names(map(str, given.reshape(-1).tolist()))
    return _PairFinder(ends).find(texts, lambda at: f"pairs, number {at:,}")


def ids_in(graph: SourceIds, start: int, stop: int) -> list[str]:
    """The ids of the vertices ``start`` to ``stop`` in the source, as text."""
    return graph.original_name(start, stop) if graph.has_names else [*map(str, graph.original_id(start, stop).tolist())]


def matching_vertices(graph: SourceIds, other: SourceIds) -> Iterator[NDArray[np.int64]]:
    """The vertices of a graph, or of a type, with the ids of the vertices of another one, some at a time.

    Yields:
        (count,) int64 vertices of ``graph``; -1 where it has no vertex with this id.
    """
    finder = _VertexFinder(graph)
    for start in range(0, other.num_vertices, _IDS):
        yield finder.places(_names(ids_in(other, start, min(start + _IDS, other.num_vertices))))


def _id_of(line: str) -> str:
    """The id in a line, without quotes and blanks around it."""
    text = line.strip()
    return split_fields(text, _NO_SEPARATOR)[0] if text[0] == '"' else text


def _without_comments(ids: dict[int, str], finder: _VertexFinder) -> dict[int, str]:
    """The first ids of a file, by line, without the comments before them."""
    others = dict(dropwhile(lambda each: each[1][:1] in _SIGNS, ids.items()))
    leading = {line: text for line, text in ids.items() if line not in others}
    known = np.flatnonzero(finder.places(_names(leading.values())) >= 0)
    return dict([*leading.items()][int(known[0]) :]) | others if len(known) else others


def _names(texts: Iterable[str]) -> Names:
    return Names.of_values(np.array([*texts], object))


def _line_of(path: Path, lines: list[int], at: int) -> str:
    return f"{path}, line {lines[at]:,}"


class _PairFinder:
    """Finds pairs by the ids of their ends."""

    def __init__(self, ends: Ends) -> None:
        self._source = _VertexFinder(ends[0])
        self._target = self._source if ends[0].folder == ends[1].folder else _VertexFinder(ends[1])

    def find(self, ids: Names, where: Callable[[int], str]) -> NDArray[np.int64]:
        """(num_pairs, 2) int64 pairs.

        Args:
            ids: of both ends, pair after pair.
            where: the place of an id in the file, from its number.

        Raises:
            InputError: an id is not one of the graph, or of the type of this end.
        """
        found = self.places(ids)
        for row, end in np.argwhere(found < 0)[:1].tolist():
            raise (self._source, self._target)[end].unknown(ids, 2 * row + end, where)
        return found

    def places(self, ids: Names) -> NDArray[np.int64]:
        """(num_pairs, 2) int64 vertices of both ends; -1 for an id that is not one of the graph."""
        if self._source is self._target:
            return self._source.places(ids).reshape(-1, 2)
        return np.stack([each.places(ids)[at::2] for at, each in enumerate((self._source, self._target))], 1)


class _VertexFinder:
    """Finds vertices by their ids; holds the ids of a part of the vertices at a time."""

    def __init__(self, graph: SourceIds) -> None:
        self._graph, self._lookups = graph, dict[int, VertexLookup]()
        self._buckets = VertexBuckets(graph.num_vertices, _AT_ONCE, Column("value", "uint8"), id_bytes(graph))

    def find(self, ids: Names, where: Callable[[int], str]) -> NDArray[np.int64]:
        """(num_ids,) int64 vertices.

        Args:
            where: the place of an id in the file, from its number.

        Raises:
            InputError: an id is not one of the graph.
        """
        found = self.places(ids)
        wrong = np.flatnonzero(found < 0)
        if len(wrong):
            raise self.unknown(ids, int(wrong[0]), where)
        return found

    def unknown(self, ids: Names, at: int, where: Callable[[int], str]) -> InputError:
        """The error for an id that is not one of the graph; for arguments see :meth:`find`."""
        return InputError(f"{where(at)}: {self.expected(ids, at)}")

    def expected(self, ids: Names, at: int) -> str:
        """The error's text for an id that the graph lacks."""
        of_type = self._graph.type
        what = f"vertex of type {of_type}" if of_type else "vertex of the graph"
        return f"{ids.name(at).decode('utf-8', 'replace')!r} is not a {what}"

    def places(self, ids: Names) -> NDArray[np.int64]:
        """(num_ids,) int64 vertices; -1 for an id that is not one of the graph."""
        found = np.full(len(ids), -1, np.int64)
        for bucket in range(self._buckets.num_buckets):
            here = self._lookup(bucket).find(ids)
            known = here >= 0
            found[known] = here[known] + self._buckets.vertices_of(bucket)[0]
        return found

    def _lookup(self, bucket: int) -> VertexLookup:
        if bucket not in self._lookups:
            self._lookups.clear()
            self._lookups[bucket] = VertexLookup(self._graph, *self._buckets.vertices_of(bucket))
        return self._lookups[bucket]
