"""Reads the columns of a table of edges besides the ids of the ends: all columns of a block of rows in one pass."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.ingest.keys.kinds import MOST_KINDS
from gnnloom.pipeline.ingest.typed.table import ValueColumn
from gnnloom.pipeline.shuffle.columns import Column
from gnnloom.pipeline.sources.binary.edge_columns import checked_times
from gnnloom.pipeline.sources.binary.parquet_table import ParquetTable
from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.sources.numpy_edges import NumpyEdges
from gnnloom.pipeline.sources.parquet_edges import ParquetEdges, unit_of_column
from gnnloom.pipeline.sources.parsers.numerals import COMMA, POINT, REASONS
from gnnloom.pipeline.sources.reading.fields import parse_dates, parse_exact
from gnnloom.pipeline.sources.reading.text_layout import Sample, declared_names, is_count
from gnnloom.pipeline.sources.reading.times import TimeForm, find_times, find_whole, is_whole, parse_times
from gnnloom.pipeline.sources.source import SourceRange
from gnnloom.pipeline.sources.text import TextEdges
from gnnloom.pipeline.sources.vertex_data.cells import (
    ArrayCells,
    CellBlock,
    Cells,
    CellTable,
    NamedCells,
    ParquetCells,
    TextCells,
    TextTableCells,
)
from gnnloom.pipeline.sources.vertex_data.class_names import UNKNOWN
from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.ticks import MOST_TICKS, TIME_UNITS, WHOLE, finest_unit, ticks_of_floats
from gnnloom.storage.wording import did_you_mean

#: Edges whose files have further columns, or further arrays.
ValuedEdges: TypeAlias = TextEdges | ParquetEdges | NumpyEdges
#: Name of the array that has all features.
FEATURE: Final = "feature"
#: Cells without a label. -1 is a label of edges, as in networks of trust.
_NO_LABEL: Final = UNKNOWN - {b"-1"}
#: Kinds of the columns of Parquet files, by role.
_PARQUET_KINDS: Final = {"weight": "iufb", "feature": "iufb", "time": "iufts", "label": "iusb"}


@dataclass(frozen=True)
class FileColumns:
    """The columns in one file of a table.

    Attributes:
        table: the file.
        numbers: number of each column in the file, from 0.
        form: how times are written, if they are dates in text.
        unit: unit of the times of the file; empty if they are numbers.
    """

    table: CellTable
    numbers: tuple[int, ...]
    form: TimeForm | None = None
    unit: str = ""


@dataclass(frozen=True)
class ColumnsTable:
    """The columns of a table besides the ids of its edges; implements ``Surveyed``, for the words of its labels.

    Attributes:
        location: the table, for messages.
        columns: what is stored.
        files: the columns in each file, in the order of the files of the edges.
        time_unit: unit of times that are dates or whole numbers beyond float64; empty for other numbers.
        words: distinct labels, ascending; None before they are known.
        spans: ranges of the table.
    """

    location: str
    columns: tuple[ValueColumn, ...]
    files: tuple[FileColumns, ...]
    time_unit: str = ""
    words: tuple[str, ...] | None = None
    spans: tuple[SourceRange, ...] = ()

    @classmethod
    def open(
        cls, edges: ValuedEdges, columns: Sequence[ValueColumn], location: str, *, are_names: bool
    ) -> ColumnsTable:
        """Find the columns in every file of a table.

        Args:
            edges: the ends of the edges in the same files.
            are_names: the ids of an end are names.

        Raises:
            InputError: a file does not have a column, or a column has values of another kind.
        """
        time = next((at for at, each in enumerate(columns) if each.role == "time"), None)
        files: list[FileColumns] = []
        for table in _cell_tables(edges, are_names=are_names):
            numbers = _numbers(table, columns, files[0].numbers if files else ())
            form, unit = (None, "") if time is None else _time_form(table, numbers[time])
            files.append(FileColumns(table, numbers, form, unit))
        unit = "" if time is None else _common_unit(files, time)
        # The first rows of a file may have no time.
        known = next((each.form for each in files if each.form is not None), None)
        if unit:
            digits = 9 if unit == "ns" else -1 if unit == WHOLE else 6
            form = replace(known or TimeForm(6, has_zone=False), digits=digits)
            files = [replace(each, form=replace(each.form or form, digits=form.digits)) for each in files]
        found = cls(location, tuple(columns), tuple(files), unit, None, tuple(edges.ranges()))
        found._check_fills()
        return replace(found, files=tuple(replace(each, table=_without_sample(each.table)) for each in files))

    def _check_fills(self) -> None:
        """Check the replacements for missing cells.

        Raises:
            InputError: it is not what the column holds.
        """
        for column in self.columns:
            if column.fill is None or column.role == "label":
                continue
            where = f"{self.location}, column {column.name}: else {column.fill!r}"
            if column.role == "time" and self.time_unit:
                if _ticks_of(column.fill, self.time_unit) is None:
                    expected = "a whole number" if self.time_unit == WHOLE else "a date such as 1970-01-01"
                    raise InputError(f"{where}: expected {expected}, as the column has")
                continue
            try:
                value = float(column.fill)
            except ValueError as error:
                raise InputError(f"{where}: expected a number") from error
            largest = float(np.finfo(np.float64 if column.role == "time" else column.dtype).max)
            if not math.isfinite(value) or abs(value) > largest:
                raise InputError(f"{where}: expected a finite number up to {largest:.3g}")

    # Stored types

    @property
    def arrays(self) -> dict[str, Column]:
        """The arrays that are stored, by name."""
        dtypes = {"weight": "float32", "time": "int64" if self.time_unit else "float64", "label": "int64"}
        found = {each.role: Column(each.role, dtypes[each.role]) for each in self.columns if each.role != FEATURE}
        if features := [each for each in self.columns if each.role == FEATURE]:
            found[FEATURE] = Column(FEATURE, features[0].dtype, (len(features),))
        return dict(sorted(found.items()))

    @property
    def classes(self) -> list[str]:
        """The words of the labels, in the order of their numbers; empty if labels are numbers themselves."""
        return [] if all(map(_is_number, self.words or ())) else list(self.words or ())

    def facts(self) -> dict[str, Any]:
        """Facts about the columns for the manifest."""
        names = {role: [each.title or each.name for each in self.columns if each.role == role] for role in self.arrays}
        return {
            "columns": names,
            "weighted": "weight" in names,
            **({"has_times": True} if "time" in names else {}),
            **({"time_unit": self.time_unit} if self.time_unit else {}),
            **({"classes": self.classes} if self.classes else {}),
        }

    # Surveys

    def surveys(self) -> Sequence[SourceRange]:
        has_labels = any(each.role == "label" for each in self.columns)
        return self.spans if has_labels and self.words is None else ()

    def survey(self, span: SourceRange) -> list[str]:
        """The distinct labels of a range, ascending.

        Raises:
            InputError: the table cannot be read, a label is missing, or there are too many different ones.
        """
        at = next(number for number, each in enumerate(self.columns) if each.role == "label")
        file, found = self.files[span.file], set[str]()
        for block in file.table.read(span, [file.numbers[at]]):
            found.update(self._words(file, block, 0, at)[0])
            self._check_count(found)
        return sorted(found)

    def with_surveys(self, found: Sequence[Sequence[str]]) -> ColumnsTable:
        """The same table, whose labels are known."""
        words = {word for each in found for word in each}
        self._check_count(words)
        return replace(self, words=tuple(sorted(words)))

    def _check_count(self, words: set[str]) -> None:
        if len(words) > MOST_KINDS:
            raise InputError(
                f"{self.location}: more than {MOST_KINDS:,} different words, such as {min(words)!r}, in the column of"
                " labels; name another column"
            )

    # Values

    def read(self, span: SourceRange) -> Iterator[dict[str, NDArray[Any]]]:
        """Read a range of the table.

        Yields:
            The values of some consecutive rows by name of the array, as they are stored: (num_rows,), and features
            (num_rows, num_features).

        Raises:
            InputError: a cell cannot be read, or has neither a value nor a replacement.
        """
        file = self.files[span.file]
        for block in file.table.read(span, file.numbers):
            found: dict[str, NDArray[Any]] = {}
            features = [at for at, each in enumerate(self.columns) if each.role == FEATURE]
            if features:
                dtype = self.columns[features[0]].dtype
                found[FEATURE] = np.empty((len(block.at), len(features)), dtype)
            for at, column in enumerate(self.columns):
                if column.role == FEATURE:
                    found[FEATURE][:, features.index(at)] = self._numbers(file, block, at, column.dtype)
                elif column.role == "weight":
                    found["weight"] = self._numbers(file, block, at, "float32")
                elif column.role == "time":
                    found["time"] = self._times(file, block, at)
                else:
                    words, indices = self._words(file, block, at, at)
                    found["label"] = np.array([self._label_numbers[word] for word in words], np.int64)[indices]
            yield found

    @cached_property
    def _label_numbers(self) -> dict[str, int]:
        """Number of each label."""
        words, are_words = self.words or (), bool(self.classes)
        return {word: number if are_words else int(word) for number, word in enumerate(words)}

    def _numbers(self, file: FileColumns, block: CellBlock, at: int, dtype: str) -> NDArray[Any]:
        """(num_rows,) numbers of a column."""
        values, row, reason = block.columns[at].numbers(1, is_list=False)
        if row >= 0:
            raise self._error(file, block, row, at, reason)
        values = self._filled(file, block, at, values[:, 0], np.isnan(values[:, 0]))
        # A number beyond the type becomes infinite, which is found below.
        with np.errstate(over="ignore"):
            stored: NDArray[Any] = values.astype(dtype)
        if not (is_finite := np.isfinite(stored)).all():
            row = int(np.argmin(is_finite))
            raise self._error(file, block, row, at, f"expected a finite {dtype}, found {values[row]}")
        return stored

    def _filled(
        self, file: FileColumns, block: CellBlock, at: int, values: NDArray[Any], missing: NDArray[np.bool_]
    ) -> NDArray[Any]:
        """Values, with replacements for missing ones.

        Raises:
            InputError: nothing stands for them.
        """
        column = self.columns[at]
        if not missing.any():
            return values
        if column.fill is None:
            shown = f"{column.name} as {column.role} else {'unknown' if column.role == 'label' else 0}"
            reason = f"no value; give a value for missing cells, as in {shown!r}"
            raise self._error(file, block, int(np.argmax(missing)), at, reason)
        has_ticks = column.role == "time" and bool(self.time_unit)
        values[missing] = _ticks_of(column.fill, self.time_unit) if has_ticks else float(column.fill)
        return values

    def _times(self, file: FileColumns, block: CellBlock, at: int) -> NDArray[Any]:
        """(num_rows,) times: int64 if they are dates, otherwise float64."""
        cells = block.columns[at]
        if isinstance(cells, ArrayCells):
            return self._stored_times(file, block, at, cells.values)
        if not isinstance(cells, TextCells):
            raise TypeError(f"cells of {type(cells).__name__}")
        if file.form is None:
            values = np.empty(len(block.at))
            row, wrong = parse_exact(_with_points(cells), cells.spans, values)
            if wrong:
                raise self._error(file, block, row, at, REASONS[wrong])
            return self._filled(file, block, at, values, np.isnan(values))
        ticks, missing = np.empty(len(block.at), np.int64), np.empty(len(block.at), np.bool_)
        row, wrong = parse_dates(cells.text, cells.spans, file.form.digits, file.form.has_zone, ticks, missing)
        if wrong:
            found = cells.text[slice(*cells.spans[row])].tobytes().decode("utf-8", "replace")
            raise self._error(file, block, row, at, file.form.reason(wrong, found))
        return self._filled(file, block, at, ticks, missing)

    def _stored_times(self, file: FileColumns, block: CellBlock, at: int, column: Any) -> NDArray[Any]:
        """(num_rows,) times of an Arrow array of numbers or dates."""
        known = column.is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(known)

        def error(row: int, reason: str) -> InputError:
            return self._error(file, block, int(rows[row]), at, reason)

        found = checked_times(column.drop_null().to_numpy(zero_copy_only=False), error, self.time_unit)
        values = np.zeros(len(block.at), np.int64 if self.time_unit else np.float64)
        values[known] = ticks_of_floats(found) if self.time_unit else found
        return self._filled(file, block, at, values, ~known)

    def _words(self, file: FileColumns, block: CellBlock, at: int, of: int) -> tuple[list[str], NDArray[np.int32]]:
        """Different labels of a block, and (num_rows,) int32 number of the label of each row.

        Args:
            at: number of the column in the block.
            of: number of the column.
        """
        names = _text_of(block.columns[at])
        encoded = names.to_arrow().dictionary_encode()
        found: list[bytes] = encoded.dictionary.to_pylist()
        indices: NDArray[np.int32] = encoded.indices.to_numpy()
        words = []
        for number, word in enumerate(found):
            if word.lower() not in _NO_LABEL:
                row, reason = Names(np.array([0, len(word)]), np.frombuffer(word, np.uint8)).first_wrong(is_id=False)
                if row >= 0:
                    raise self._error(file, block, int(np.argmax(indices == number)), of, reason)
                words.append(word.decode())
                continue
            if self.columns[of].fill is None:
                self._filled(file, block, of, np.empty(0), indices == number)
            words.append(self.columns[of].fill or "")
        return words, indices

    def _error(self, file: FileColumns, block: CellBlock, row: int, at: int, reason: str) -> InputError:
        """The error for a cell of a block."""
        return file.table.error(int(block.at[row]), file.numbers[at], reason)


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) < 19


def _with_points(cells: TextCells) -> NDArray[np.uint8]:
    """The text of cells, with points instead of decimal commas."""
    return np.where(cells.text == COMMA, POINT, cells.text).astype(np.uint8) if cells.has_commas else cells.text


def _text_of(cells: Cells) -> Names:
    """The text of cells; empty where there is none."""
    if not isinstance(cells, ArrayCells):
        return cells.words()
    import pyarrow as pa  # noqa: PLC0415 - only Parquet files need it

    return Names.of_values(cells.values.cast(pa.string()).fill_null(""))


def _ticks_of(date: str, unit: str) -> int | None:
    """A date as a number of a unit since 1970, or a whole number; None if it is neither, or the unit lacks it."""
    if unit == WHOLE:
        return int(date) if is_whole(date) and abs(int(date)) <= MOST_TICKS else None
    form = find_times([date])
    if form is None:
        return None
    text, ticks = Names.of_values(np.array([date])), np.empty(1, np.int64)
    if parse_times(text.text, text.offset, form.digits, form.has_zone, ticks)[1]:
        return None
    given = ticks.view(f"M8[{form.unit}]")
    found = given.astype(f"M8[{unit}]")
    return int(found.view(np.int64)[0]) if (found == given).all() else None


def _cell_tables(edges: ValuedEdges, *, are_names: bool) -> Iterator[CellTable]:
    """The files of edges as tables of cells, whose rows are the edges."""
    if isinstance(edges, NumpyEdges):
        yield NamedCells(edges.values)
        return
    if isinstance(edges, ParquetEdges):
        yield from (ParquetCells(table) for table in edges.tables)
        return
    # Readers of numbers skip all comments; readers of names skip the comments that the user declared.
    stated = edges.stated
    comments = b"" if stated.comment in {"", "none"} else stated.comment.encode()
    comments = comments if are_names else comments + b"#%"
    for file, table in zip(edges.files, edges.tables, strict=True):
        sample = Sample.of(file, replace(stated, separator=table.separator))
        rows = tuple(row for row in sample.rows if row.start >= table.first_row)
        width = len(rows[0].fields) if rows else len(table.header)
        has_commas = stated.decimal == ","
        yield TextTableCells(
            file,
            table.separator,
            table.header,
            width,
            table.first_row,
            rows,
            has_commas=has_commas,
            comments=comments,
        )


def _without_sample(table: CellTable) -> CellTable:
    """The same table as tasks carry it, without its first rows."""
    return replace(table, sample=()) if isinstance(table, TextTableCells) else table


def _numbers(table: CellTable, columns: Sequence[ValueColumn], first: Sequence[int]) -> tuple[int, ...]:
    """Numbers of columns in a file, from 0.

    Args:
        first: the numbers in the first file, whose columns a file without names has.

    Raises:
        InputError: the file does not have a column, or the column has another type.
    """
    location, found = table.file.location, []
    for at, column in enumerate(columns):
        names = declared_names(table.names, column.name)
        if len(names) > 1:
            raise InputError(f"{location}: {len(names)} columns are called {column.name}; give their numbers, from 1")
        number = names[0] if names else int(column.name) - 1 if is_count(column.name) else -1
        if not table.names and first:
            number = first[at]
        if not 0 <= number < table.width:
            known = did_you_mean(column.name, [each for each in table.names if each], "the first line has")
            raise InputError(
                f"{location}: no column {column.name}; {known or f'the columns are numbered from 1 to {table.width}'}"
            )
        if isinstance(table, ParquetCells):
            _check_type(table.table, table.names[number], column)
        found.append(number)
    return tuple(found)


def _check_type(table: ParquetTable, name: str, column: ValueColumn) -> None:
    """Check the type of a column of a Parquet file.

    Raises:
        InputError: the column cannot have what it should hold.
    """
    kinds = _PARQUET_KINDS[column.role]
    if not (column.role in {"weight", FEATURE} and table.holds_numbers(name) == "number"):
        # Numbers that are text are parsed as in other files.
        table.check_columns([name], f"{kinds}s")


def _time_form(table: CellTable, number: int) -> tuple[TimeForm | None, str]:
    """Form of the times in a column if they are dates in text, and their unit; empty if times are numbers."""
    if isinstance(table, ParquetCells):
        name = table.names[number]
        if not table.table.holds_text(name):
            return None, unit_of_column(table.table, name)
    cells = [cell for cell in table.first_cells(number)[1] if cell.strip().lower().encode() not in _NO_LABEL]
    form = find_whole(cells) or find_times(cells)
    return form, "" if form is None else form.unit


def _common_unit(files: Sequence[FileColumns], time: int) -> str:
    """The finest unit of the times of all files; empty if they are numbers.

    Raises:
        InputError: some Parquet files have dates and others have numbers.
    """
    unit = finest_unit(each.unit for each in files)
    for each in files if unit in TIME_UNITS else ():
        table, number = each.table, each.numbers[time]
        if isinstance(table, ParquetCells) and table.table.holds_text(table.names[number]):
            # Dates in text count at least microseconds.
            unit = finest_unit([unit, "us"])
        elif isinstance(table, ParquetCells) and each.unit not in TIME_UNITS:
            raise table.error(0, number, "expected dates, as other files have")
    return unit
