"""Edges from Parquet files: two columns of ids (numbers or text) and optionally one of weights, by row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.binary.edge_columns import checked_ids, checked_values
from gnnloom.pipeline.sources.binary.parquet_table import ParquetTable
from gnnloom.pipeline.sources.format import COLUMNS, TIMES, WEIGHTS, Format, check_parts, check_values, column_names
from gnnloom.pipeline.sources.names import NameChunk, Names
from gnnloom.pipeline.sources.reading.ends import MOST_CANDIDATES, fields_by_name, find_other_ends
from gnnloom.pipeline.sources.reading.files import open_files
from gnnloom.pipeline.sources.reading.first_lines import CALLED, is_called
from gnnloom.pipeline.sources.reading.name_ids import FIRST_ROWS, RowError, check_forms, check_present, judge_column
from gnnloom.pipeline.sources.reading.others.margins import footer_of
from gnnloom.pipeline.sources.reading.text_layout import PANDAS_INDEX, find_ends
from gnnloom.pipeline.sources.reading.times import TimeForm, find_times, find_whole, parse_times
from gnnloom.pipeline.sources.source import EdgeChunk, SourceRange
from gnnloom.pipeline.sources.understood import SHOWN_ROWS, Understood
from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.ticks import TIME_UNITS, WHOLE, finest_unit, floats_of_ticks, have_floats
from gnnloom.storage.wording import shell_command

#: Number of edges that one task reads; a row group is never divided.
RANGE_EDGES = 1 << 23
#: Number of edges read at a time.
BLOCK_EDGES = 1 << 20
#: Number of edges read at a time if ids are text, whose length is unknown in advance.
_BLOCK_NAMES = 1 << 16
#: Columns of the widest table that is compared with an adjacency matrix, and of a table of edges with a value.
_MOST_MATRIX: Final = 1024
_TRIPLE: Final = 3


@dataclass(frozen=True)
class ParquetEdges:
    """Edges from Parquet files; implements :class:`~gnnloom.pipeline.sources.names.NamedEdgeSource`.

    Ranges count row groups.

    Attributes:
        tables: one per file.
        columns: for each table, the names of the source, target and, if there are some, weight or time columns.
        weights: whether edges have weights.
        times: whether edges have times.
        any_name: whether all ids are names, whatever they look like.
        range_edges: number of edges in a range, unless one row group has more.
        block_edges: number of edges read at a time.
        time_unit: unit in which times that are dates are stored; empty if there are none, or numbers.
        forms: for each table, how times that are text are written; None for others.
        is_stated: the user said which columns are read.
    """

    tables: tuple[ParquetTable, ...]
    columns: tuple[tuple[str, ...], ...]
    weights: bool = False
    times: bool = False
    any_name: bool = False
    range_edges: int = RANGE_EDGES
    block_edges: int = BLOCK_EDGES
    time_unit: str = ""
    forms: tuple[TimeForm | None, ...] = ()
    is_stated: bool = False

    @classmethod
    def open(
        cls,
        locations: Sequence[str],
        *,
        weights: bool = False,
        columns: str | Sequence[str] = (),
        times: bool = False,
    ) -> ParquetEdges:
        """Find the files and read their footers.

        Args:
            columns: names of the source, target and optionally weight columns, which a text separates by commas; none
                for the first columns. Naming three columns implies ``weights``, unless they have ``times``.

        Raises:
            NotFoundError: a file does not exist.
            InputError: a file is not a Parquet file, or lacks such columns of suitable types.
        """
        check_values(weights=weights, times=times)
        tables = tuple(ParquetTable.open(file) for file in open_files(locations))
        wanted = column_names(columns, weights=weights, times=times)
        valued = weights or times or len(wanted) == 3
        chosen = tuple(wanted or _unstated_columns(table, valued=valued) for table in tables)
        if not wanted:
            named = [(table.file.location, names[:2]) for table, names in zip(tables, chosen, strict=True)]
            check_parts(named, "; if they are parts of one table, rename the columns of one")
        for table, names in zip(tables, chosen, strict=True):
            _check(table, names, valued, times=times)
        forms = tuple(_form(table, names[2]) if times else None for table, names in zip(tables, chosen, strict=True))
        unit = _time_unit(tables, chosen, forms) if times else ""
        # Times of all files have one unit.
        forms = tuple(form and replace(form, digits=9 if unit == "ns" else form.digits) for form in forms)
        is_stated = bool(wanted) or valued
        return cls(tables, chosen, valued and not times, times, time_unit=unit, forms=forms, is_stated=is_stated)

    def identity(self) -> dict[str, Any]:
        return {
            "format": "parquet",
            "weights": self.weights,
            **({"times": True} if self.times else {}),
            "columns": [list(names) for names in self.columns],
            "files": [table.file.identity() for table in self.tables],
        }

    @property
    def num_edges(self) -> int:
        return sum(table.num_rows for table in self.tables)

    def num_vertices(self) -> int | None:
        return None

    def ranges(self) -> Sequence[SourceRange]:
        return [span for number, table in enumerate(self.tables) for span in self._ranges_of(number, table)]

    def _ranges_of(self, number: int, table: ParquetTable) -> Iterator[SourceRange]:
        start, rows = 0, 0
        for group, more in enumerate(table.group_rows):
            # Reading part of a row group costs as much as decoding all of it, so ranges end between groups.
            if rows and rows + more > self.range_edges:
                yield SourceRange(number, start, group)
                start, rows = group, 0
            rows += more
        yield SourceRange(number, start, len(table.group_rows))

    def read(self, span: SourceRange) -> Iterator[EdgeChunk]:
        table, names = self.tables[span.file], self.columns[span.file]
        rows = self._block_rows(table, names)
        for first, columns in table.read_arrow(names, range(span.start, span.stop), rows):
            source, target = (
                checked_ids(column.to_numpy(zero_copy_only=False), _error(table, name, first))
                for name, column in zip(names[:2], columns[:2], strict=True)
            )
            found = self._values(span.file, columns[2], first) if len(names) > 2 else None
            yield EdgeChunk.valued(source, target, found, times=self.times)

    def understood(self) -> list[Understood]:
        """Describes how each file is read, judging by its footer and first rows."""
        return [self._understood(table, names) for table, names in zip(self.tables, self.columns, strict=True)]

    def _understood(self, table: ParquetTable, names: Sequence[str]) -> Understood:
        kinds = dict(zip(table.names, table.types, strict=True))
        read = [f"{name} ({kinds[name]})" for name in names]
        value = f", {'times' if self.times else 'weights'} in {read[2]}" if len(read) > 2 else ""
        if self.time_unit:
            value += (
                " (whole numbers, stored as int64)"
                if self.time_unit == WHOLE
                else f" (stored in {self.time_unit}, UTC)"
            )
        ignored = [name for name in table.names if name not in names]
        are_names: bool | None = None
        rows: list[tuple[str, ...]] = []
        try:
            are_names, question = self.any_name or _hold_names(table, names), ""
            _, columns = next(table.read_arrow(names, range(1), SHOWN_ROWS))
            rows = list(zip(*(map(str, column.to_pylist()) for column in columns), strict=True))
        except InputError as error:
            question = str(error)
        facts = {"source": names[0], "target": names[1], "types": kinds, **({"ignored": ignored} if ignored else {})}
        ids = {} if are_names is None else {"ids": "names" if are_names else "numbers"}
        return Understood(
            table.file.location,
            "parquet",
            {**facts, **({"value": names[2]} if len(names) > 2 else {}), **ids},
            ("Parquet", f"edges from {read[0]} to {read[1]}{value}", f"ids are {ids['ids']}" if ids else ""),
            question,
            tuple(names),
            tuple(rows),
            are_names,
            () if self.is_stated else self._flags(table, names),
            self.is_stated,
        )

    def _flags(self, table: ParquetTable, names: Sequence[str]) -> tuple[str, ...]:
        """Options that read a further column as weights or times, if its name says so, and that leave no id out."""
        flags = list[str]()
        for kind in CALLED:
            found = [name for name in table.names if name not in names and is_called(name, kind)]
            if not flags and found and table.holds(found[0], "iuft" if kind == "times" else "iuf"):
                # The next column is read without its name.
                is_next = table.names[:3] == (*names, found[0])
                flags += [f"--{kind}"] if is_next else [f"--columns {','.join((*names, found[0]))}"]
                flags += [f"--{kind}"] if kind == "times" and flags[0] != f"--{kind}" else []
                flags += ["--merge max"] if kind == "times" else []
        if 0 < table.num_rows <= FIRST_ROWS and not any(map(table.holds_text, names)):
            # A column that cannot be read is a question already.
            with suppress(InputError):
                blocks = [columns for _, columns in table.read_arrow(names, range(len(table.group_rows)), FIRST_ROWS)]
                smallest = min(column.to_numpy(zero_copy_only=False).min() for columns in blocks for column in columns)
                flags += ["--ids compact"] if smallest > 0 else []
        return tuple(flags)

    def _block_rows(self, table: ParquetTable, names: Sequence[str]) -> int:
        """Rows that are read at a time: few if ids are text, whose length is unknown in advance."""
        return min(self.block_edges, _BLOCK_NAMES) if any(map(table.holds_text, names)) else self.block_edges

    def _values(self, number: int, column: Any, first: int) -> NDArray[Any]:
        """(num_rows,) weights or times of a block of a table that begins with row ``first``."""
        error, form = (
            _error(self.tables[number], self.columns[number][2], first),
            self.forms[number] if self.forms else None,
        )
        if form is None:
            return checked_values(column.to_numpy(zero_copy_only=False), error, times=self.times, unit=self.time_unit)
        words, ticks = Names.of_values(column), np.empty(len(column), np.int64)
        row, fault = parse_times(words.text, words.offset, form.digits, form.has_zone, ticks)
        if fault:
            raise error(row, form.reason(fault, words.name(row).decode("utf-8", "replace")))
        return floats_of_ticks(ticks)

    def as_named(self) -> ParquetEdges:
        return replace(self, any_name=True)

    def begins_with_names(self) -> bool:
        if self.any_name:
            return True
        chosen = zip(self.tables, self.columns, strict=True)
        # All are judged, because any column may have a fault.
        return sum(_hold_names(table, names) for table, names in chosen) > 0

    def read_names(self, span: SourceRange) -> Iterator[NameChunk]:
        table, names = self.tables[span.file], self.columns[span.file]
        rows = min(self.block_edges, _BLOCK_NAMES)
        checks = not self.any_name
        for first, columns in table.read_arrow(names, range(span.start, span.stop), rows):
            source, target = (
                _names(table, name, ids, first, checks=checks) for name, ids in zip(names[:2], columns[:2], strict=True)
            )
            found = self._values(span.file, columns[2], first) if len(names) > 2 else None
            if checks and 1 < table.num_rows == first + len(source) and (fault := footer_of(source, target)[1]):
                reason = f"{fault}, or add `--ids names` if it is an edge"
                raise table.error(names[0], table.num_rows - 1, reason)
            yield NameChunk.valued(source, target, found, times=self.times)


def _unstated_columns(table: ParquetTable, *, valued: bool) -> tuple[str, ...]:
    """The columns that are called ends of edges, or the first two; and another one if edges have values.

    Raises:
        InputError: the names leave it open which columns are read.
    """
    by_name = fields_by_name(table.file.location, table.names, (0, 1), valued=valued)
    if by_name is None:
        _refuse_matrix(table)
        num_rows, cells = (0, {}) if valued else _first_ids(table)
        found = find_other_ends(table.file.location, cells, table.names, (0, 1), num_rows=num_rows, valued=valued)
        if found:
            raise InputError(found[1])
        return table.names[: 3 if valued else 2]
    fields, question = by_name
    if question:
        raise InputError(question)
    return tuple(table.names[at] for at in fields)


def _first_ids(table: ParquetTable) -> tuple[int, dict[int, set[str]]]:
    """Number of first rows, and their distinct cells in the first columns that may have ids, by number.

    There are none of a table of two columns.
    """
    numbers = [at for at, name in enumerate(table.names[:MOST_CANDIDATES]) if table.holds(name, "ius")]
    if len(table.names) < _TRIPLE or not numbers or not table.num_rows:
        return 0, {}
    names = [table.names[at] for at in numbers]
    if len(set(table.names)) < len(table.names):
        return 0, {}
    blocks = table.read_arrow(names, range(len(table.group_rows)), FIRST_ROWS, nulls=True)
    _, columns = next(blocks)
    firsts = [Names.of_values(column.drop_null()).beginning() for column in columns]
    cells = {at: {name.decode("utf-8", "replace") for name in first} for at, first in zip(numbers, firsts, strict=True)}
    return len(columns[0]), cells


def _refuse_matrix(table: ParquetTable) -> None:
    """Refuse a table without names of ends that has a row and a column per vertex.

    Raises:
        InputError: its numbers are square and symmetric, or square and only zeros and ones.
    """
    names = [name for name in table.names if name != PANDAS_INDEX]
    are_numbers = all(table.holds_numbers(name) == "number" for name in names)
    if not 2 < len(names) == table.num_rows <= _MOST_MATRIX or find_ends(names) or not are_numbers:
        return
    blocks = table.read_arrow(names, range(len(table.group_rows)), table.num_rows, nulls=True)
    cells = np.concatenate([[column.to_numpy(zero_copy_only=False) for column in block] for _, block in blocks], axis=1)
    is_binary = len(names) > _TRIPLE and bool(np.isin(cells, (0, 1)).all())
    if is_binary or np.array_equal(cells, cells.T):
        first = ",".join(names[:2])
        raise InputError(
            f"{table.file.location}: a matrix with a row and a column per vertex, not a list of edges; convert it, for"
            f" example with .stack() in pandas, or add `{shell_command('--columns', first)}` if each row is an edge"
        )


def _names(table: ParquetTable, name: str, column: Any, first: int, *, checks: bool) -> Names:
    names = Names.of_values(column)
    row, reason = names.first_wrong()
    if row >= 0:
        raise table.error(name, first + row, reason)
    if checks:
        check_present(names, _error(table, name, first))
    return names


def _hold_names(table: ParquetTable, columns: Sequence[str]) -> bool:
    """Whether the first ids of a column are names."""
    texts = [name for name in columns[:2] if table.holds_text(name)]
    if not texts or not table.group_rows:
        return False
    _, found = next(table.read_arrow(texts, range(1), FIRST_ROWS))
    first = [Names.of_values(column).beginning() for column in found]
    judged = [judge_column(names, _error(table, name, 0)).are_names for name, names in zip(texts, first, strict=True)]
    if any(judged):
        check_forms(first, _error(table, texts[0], 0))
    return any(judged)


def _form(table: ParquetTable, name: str) -> TimeForm | None:
    """Form of the times in a column of text; None if the column is not text.

    Raises:
        InputError: the first one is not a date.
    """
    if not table.holds_text(name) or not table.num_rows:
        return None
    blocks = table.read_arrow([name], range(len(table.group_rows)), FIRST_ROWS)
    column = next(column for _, (column,) in blocks if len(column))
    cells = [each.decode("utf-8", "replace") for each in Names.of_values(column)]
    form = find_whole(cells) or find_times(cells)
    if form is None:
        raise table.error(name, 0, f"expected a number, or a time such as 2024-03-05T10:11:12, found {cells[0]!r}")
    return form


def _time_unit(
    tables: Sequence[ParquetTable], columns: Sequence[Sequence[str]], forms: Sequence[TimeForm | None]
) -> str:
    """The finest unit of the times of all files; empty if they are numbers.

    Raises:
        InputError: some files have dates and others have numbers.
    """
    units = [
        form.unit if form is not None else unit_of_column(table, names[2])
        for table, names, form in zip(tables, columns, forms, strict=True)
    ]
    are_dates = [unit in TIME_UNITS for unit in units]
    if any(are_dates) and not all(are_dates):
        table, names = tables[are_dates.index(False)], columns[are_dates.index(False)]
        raise InputError(f"{table.file.location}, column {names[2]}: expected dates, as other files have")
    return finest_unit(units)


def unit_of_column(table: ParquetTable, name: str) -> str:
    """The unit in which the times of a column of dates or numbers are stored; empty if they are float64.

    Raises:
        InputError: the first times cannot be read.
    """
    kind = table.types[table.names.index(name)]
    if table.holds(name, "iu") and table.num_rows:
        blocks = table.read_arrow([name], range(len(table.group_rows)), FIRST_ROWS, nulls=True)
        first = next(column for _, (column,) in blocks if len(column))
        return "" if have_floats(first.drop_null().to_numpy(zero_copy_only=False)).all() else WHOLE
    unit = kind.partition("[")[2].partition("]")[0].partition(",")[0]
    return unit if kind.startswith(("timestamp", "date64")) else "s" if kind.startswith("date32") else ""


def _check(table: ParquetTable, names: Sequence[str], valued: bool, *, times: bool) -> None:
    if len(names) < (3 if valued else 2):
        found = ", ".join(table.names) or "none"
        raise InputError(f"{table.file.location}: expected columns of sources and targets, found {found}")
    table.check_columns(names[:2], "ius")
    table.check_columns(names[2:], "iufts" if times else "iuf")
    if not table.num_rows:
        raise InputError(f"{table.file.location}: the file has no edges")


def _error(table: ParquetTable, name: str, first: int) -> RowError:
    """The errors of a block of a column that begins with row ``first``."""
    return lambda row, reason: table.error(name, first + row, reason)


FORMAT = Format(
    name="parquet",
    order=20,
    help="two or three columns",
    open_edges=ParquetEdges.open,
    options=(
        WEIGHTS,
        TIMES,
        COLUMNS,
    ),
    begins=(b"par1",),
    suffixes=("parquet", "pq"),
)
