"""Vertex data from some columns of a table: numbers, lists, words as categories, masks, with missing values filled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.binary.stored_arrays import PackedSource, StoredArray, Unpacked
from gnnloom.pipeline.sources.reading.files import SourceFile, shown_location
from gnnloom.pipeline.sources.reading.text_layout import (
    PANDAS_INDEX,
    UNSTATED,
    Sample,
    Stated,
    doubt_of_points,
    names_ids,
    numbers_rows,
)
from gnnloom.pipeline.sources.reading.text_table import spelled
from gnnloom.pipeline.sources.source import SourceRange
from gnnloom.pipeline.sources.understood import Understood, columns_in_words, header_in_words, of_vertices
from gnnloom.pipeline.sources.vertex_data.cells import (
    CellBlock,
    CellTable,
    NumpyCells,
    ParquetCells,
    TextTableCells,
    column_name,
)
from gnnloom.pipeline.sources.vertex_data.chosen.surveys import (
    ERROR,
    MEAN,
    ZERO,
    ColumnSurveys,
    Filling,
    KnownColumns,
    Survey,
    cell_numbers,
)
from gnnloom.pipeline.sources.vertex_data.class_names import MOST_NAMES, UNKNOWN
from gnnloom.pipeline.sources.vertex_data.parted_cells import PartedCells
from gnnloom.pipeline.sources.vertex_data.table_columns import (
    ELSE,
    Column,
    choose,
    find_columns,
    ids_question,
    is_numpy,
    is_parquet,
    open_table,
    with_ids,
)
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import SPLIT, VERTEX_ARRAYS, array_in_file, split_part
from gnnloom.storage.wording import counted, shell_command

#: Further files of a table, and whether the first line of each names the columns; None if that is not known.
Parts: TypeAlias = Sequence[tuple[str, bool | None]]


def _as_read(table: CellTable, num_values: int, ids: int | None) -> CellTable:
    """A table without its first rows, as tasks carry it.

    Args:
        num_values: values of a row.
        ids: number of the column of ids; None if rows are in the order of the vertices, and are counted.
    """
    if isinstance(table, ParquetCells):
        return replace(table, row_values=num_values)
    if isinstance(table, TextTableCells):
        return replace(table if ids is not None else table.counted(), sample=())
    return table


def _deciding(table: CellTable, text: Stated) -> Stated:
    """The facts that the user states about a table, without a separator that is found anyway."""
    first = table.parts[0] if isinstance(table, PartedCells) else table
    if not isinstance(first, TextTableCells) or not text.separator:
        return replace(text, separator=b"")
    try:
        found = Sample.of(first.file, replace(text, separator=b"")).separator
    except InputError:
        return text
    return replace(text, separator=b"") if found == text.separator else text


def _without_fills(columns: Sequence[str], location: str, option: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Columns without their fills (``else VALUE``), and the fills by column.

    Raises:
        InputError: something stands for missing values that are none of features, or nothing follows ``else``.
    """
    names, fills = list[str](), dict[str, str]()
    for column in columns:
        name, separator, fill = column.partition(ELSE)
        names.append(name.strip())
        if not separator:
            continue
        where = f"{shown_location(location)}, column {column!r}"
        if option != "feature":
            raise InputError(f"{where}: only features need a value for missing cells; a {option} may be unknown")
        if not fill.strip() or (is_numpy(location) and shown_location(location).endswith("npz")):
            raise InputError(f"{where}: expected a value after else for a column of a table, as in `age else 0`")
        fills[name.strip()] = fill.strip()
    return tuple(names), fills


def _with_fill(table: CellTable, column: Column, fill: str | None) -> Column:
    """A column with the fill of its missing values.

    Raises:
        InputError: the column has numbers, and this is not one.
    """
    if fill is None or fill == MEAN or column.kind == "words":
        return replace(column, fill=fill)
    try:
        is_number = bool(abs(float(fill)) <= np.finfo(np.float32).max)
    except ValueError:
        is_number = False
    if not is_number:
        raise InputError(
            f"{table.file.location}, column {column.name}: else {fill!r}: expected a finite float32 number, or mean"
        )
    return replace(column, fill=fill)


@dataclass(frozen=True)
class ChosenColumns:
    """The columns of a table that hold one array of vertex data.

    Attributes:
        table: the table.
        array: name of the array.
        columns: the columns.
        ids: number of the column with the ids of the rows; None if row k belongs to vertex k.
        filling: options for missing features and for words.
        surveyed: the survey of each column; None before the survey.
        stated: the choices of the user, for the identity.
        question: a question that the table leaves open; empty if there is none.
        known: stored vertex data whose categories, means and classes these take; None for others.
    """

    table: CellTable
    array: str
    columns: tuple[Column, ...]
    ids: int | None = None
    filling: Filling = field(default_factory=Filling)
    surveyed: tuple[Survey, ...] | None = None
    stated: Mapping[str, Any] = field(default_factory=dict)
    question: str = ""
    known: KnownColumns | None = None

    @classmethod
    def open(
        cls,
        location: str,
        columns: Sequence[str],
        option: str,
        *,
        ids: str | StoredArray | None = None,
        by_id: bool = False,
        text: Stated = UNSTATED,
        filling: Filling | None = None,
        parts: Parts = (),
    ) -> ChosenColumns:
        """Find the columns.

        Args:
            location: the table.
            columns: columns that the user names, or the member of an ``.npz``; none for all but the ids. A column of
                features may have a fill for missing values: ``age else 0``, ``age else mean``.
            option: the option that names the table.
            ids: name or number of the column of ids, or an array of them.
            by_id: whether rows have ids; if ``ids`` is None, they are in the first column.
            text: header, separator and decimals of text files.
            filling: options for missing features and for words.
            parts: further files of the table.

        Raises:
            NotFoundError: a file does not exist.
            InputError: a file is not a table, or has other columns than the first file; a column does not
                exist or does not fit the array; or its fill is not valid.
        """
        row_ids = ids if isinstance(ids, StoredArray) else None
        named_ids = ids if isinstance(ids, str) else None
        stated: dict[str, Any] = {"columns": list(columns)}
        columns, fills = _without_fills(columns, location, option)
        table = with_ids(open_table(location, columns, text, option, named_ids), row_ids)
        if parts:
            others = [open_table(each, columns, replace(text, header=has), option, named_ids) for each, has in parts]
            table = PartedCells.of([table, *others])
        named = () if is_numpy(location) and shown_location(location).endswith("npz") else columns
        has_index = table.width > 1 and numbers_rows(table.names[0]) if table.names else False
        id_column: int | None = None
        if row_ids is not None:
            id_column = table.width
        elif isinstance(ids, str):
            (id_column,) = choose(table, [ids])
        elif by_id:
            id_column = int(has_index and table.width > 2 and names_ids(table.names[1]))
        left = {id_column, 0 if has_index else None}
        if not named:
            left |= {number for number, name in enumerate(table.names) if name == PANDAS_INDEX}
            # A separator may end each line.
            if table.names[-1:] == ("",) and not any(table.first_cells(table.width - 1)[1]):
                left.add(table.width - 1)
        numbers = choose(table, named) if named else [number for number in range(table.width) if number not in left]
        if id_column in numbers and named:
            raise InputError(
                f"{shown_location(location)}: column {table.names[id_column or 0]} has the ids of the rows; leave"
                " it out"
            )
        filled = {number: fill for name, fill in fills.items() for number in choose(table, [name])}
        found = [
            _with_fill(table, column, filled.get(column.number))
            for column in find_columns(table, numbers, VERTEX_ARRAYS[option])
        ]
        if not found:
            raise InputError(f"{shown_location(location)}: expected a column of {option}s next to the ids, found none")
        array = array_in_file(option, sum(column.width for column in found))
        if id_column is not None:
            stated["ids"] = row_ids.file.identity() if row_ids is not None else ids
        stated |= _deciding(table, text).to_json()
        question = ids_question(table, numbers, id_column, is_stated=ids is not None)
        chosen = cls(table, array, tuple(found), id_column, filling or Filling(), None, stated, question)
        chosen._check(option, is_stated=bool(named))
        width = sum(column.width for column in found)
        if isinstance(table, PartedCells):
            return replace(chosen, table=PartedCells(tuple(_as_read(each, width, id_column) for each in table.parts)))
        return replace(chosen, table=_as_read(table, width, id_column))

    @classmethod
    def of(cls, table: CellTable, numbers: Sequence[int], option: str, ids: int | None) -> ChosenColumns:
        """Some columns of an open table, for display.

        Raises:
            InputError: a column cannot be read.
        """
        found = find_columns(table, numbers, VERTEX_ARRAYS[option])
        array = array_in_file(option, sum(column.width for column in found))
        question = ids_question(table, numbers, ids, is_stated=False)
        return cls(table, array, tuple(found), ids, question=question)

    def understood(self) -> list[Understood]:
        """Describes how the table is read."""
        (how, what, ids), location = self.in_words(), self.file.location
        kind = "npy" if is_numpy(location) else "parquet" if is_parquet(location) else "text"
        found = of_vertices(location, kind, how, VERTEX_ARRAYS[self.array].option, what, ids)
        first, *others = found.sentences
        return [replace(found, sentences=(first, *filter(None, [self._doubt()]), *others), question=self.question)]

    def _doubt(self) -> str:
        """Sentence on numbers whose points may separate thousands; empty if no column has such numbers."""
        table = self.table
        if not isinstance(table, TextTableCells) or table.has_commas or table.separator != b";":
            return ""
        doubts = (doubt_of_points(table.separator, table.first_cells(column.number)[1]) for column in self.columns)
        return next(filter(None, doubts), "")

    def _check(self, option: str, *, is_stated: bool) -> None:
        """Check that the array can hold the values of the columns.

        Raises:
            InputError: it cannot.
        """
        where = self.table.file.location
        words = [column.name for column in self.columns if column.kind == "words"]
        if option == "split":
            if len(self.columns) > 1 and not self.parts:
                raise InputError(
                    f"{where}: {len(self.columns)} columns; expected one column of a split, or masks whose columns are"
                    " called train_mask, val_mask and test_mask"
                )
            return
        if option == "feature" and words and not is_stated:
            given = f"{where}:{','.join(column.name for column in self.columns[:4])}"
            raise InputError(
                f"{where}: column {words[0]} has words; name the columns to store, as in"
                f" `{shell_command('--feature', given)}`: words become a column of zeros and ones per category"
            )
        if words and (option == "target" or (option == "label" and len(self.columns) > 1)):
            raise InputError(f"{where}, column {words[0]}: expected numbers, found words")

    @property
    def parts(self) -> tuple[str, ...]:
        """The part of the split of each column, if each column is the mask of one part."""
        parts = [split_part(column.name) for column in self.columns]
        found = tuple(part for part in parts if part is not None)
        is_split = self.array == "split" and len(found) == len(parts) == len(set(found))
        return found if is_split and (len(parts) > 1 or self.columns[0].name.endswith("mask")) else ()

    @property
    def file(self) -> SourceFile:
        return self.table.file

    def identity(self) -> dict[str, Any]:
        """JSON for keys; it does not depend on what surveys find."""
        more = self.filling.parameters if self.array == "feature" else {}
        if isinstance(self.table, PartedCells):
            more = {**more, "parts": [each.file.identity() for each in self.table.parts[1:]]}
        return {"array": self.array, "file": self.table.file.identity(), **self.stated, **more}

    def in_words(self) -> tuple[str, str, str]:
        """Sentences for display: the reading of the table, the columns of the array, and the column of the ids."""
        table, how = self.table, "Parquet"
        if isinstance(table, PartedCells):
            first = replace(self, table=table.parts[0]).in_words()
            return f"{first[0]}; {counted(len(table.parts), 'file')}", *first[1:]
        if isinstance(table, TextTableCells):
            how = f"text, fields between {spelled(table.separator)}; {header_in_words(bool(table.names))}"
            how += "; decimal commas" if table.has_commas else ""
        elif isinstance(table, NumpyCells):
            how = "NumPy"
        kinds = {"list": "lists of {width:,}", "words": "words", "number": ""}
        if self.array == "split":
            kinds["words"] = ""
        if self.array == "feature":
            kinds["words"] = "one column for each word"
        names = []
        for column in self.columns:
            kind = kinds[column.kind].format(width=column.width)
            kind = ", ".join(filter(None, [kind, "" if column.fill is None else f"else {column.fill}"]))
            names.append(f"{column.name} ({kind})" if kind else column.name)
        arrays = self.stored_arrays()
        ids = arrays[1].file.location if len(arrays) > 1 else ""
        ids = ids or (f"column {column_name(table, self.ids)}" if self.ids is not None else "")
        return how, columns_in_words(names), ids

    # Surveys

    @property
    def _has_words(self) -> bool:
        return self.array in {"feature", "label"} and any(column.kind == "words" for column in self.columns)

    @property
    def _surveys(self) -> ColumnSurveys:
        """The surveys of the columns whose words or means are needed."""
        is_feature = self.array == "feature"
        columns = tuple(column for column in self.columns if column.kind == "words" or self._needs_mean(column))
        remedy = "; leave it out, number the words, or raise the limit with `--categories` of `gnnloom features`"
        remedy = remedy if is_feature else "; number them first"
        most = self.filling.categories if is_feature else MOST_NAMES
        return ColumnSurveys(self.table, columns, self.filling, most, remedy)

    def _needs_mean(self, column: Column) -> bool:
        return self.array == "feature" and (self.filling.of(column) == MEAN or self.filling.indicator)

    def surveys(self) -> Sequence[SourceRange]:
        """The ranges to survey; none if the table can be read."""
        is_needed = self._has_words or any(map(self._needs_mean, self.columns))
        return self.table.ranges() if self.surveyed is None and is_needed else ()

    def survey(self, span: SourceRange) -> list[Any]:
        """Survey a range of the table; raises as :meth:`ColumnSurveys.survey` does."""
        return self._surveys.survey(span)

    def with_surveys(self, found: Sequence[Sequence[Any]]) -> ChosenColumns:
        """The same columns, with the results of the surveys of all ranges.

        Raises:
            InputError: a column has too many words, or no value at all.
        """
        merged = self._surveys.merged(found)
        return replace(self, surveyed=tuple(merged.get(column, Survey()) for column in self.columns))

    # Rows

    @property
    def num_columns(self) -> int:
        """Columns of the array; an estimate before the surveys."""
        if self.array != "feature":
            return 1 if self.parts or self._has_words else sum(column.width for column in self.columns)
        return sum(each["width"] for each in self.layout)

    @property
    def layout(self) -> list[dict[str, Any]]:
        """Records of the stored features, in order: one for each column of the table, and one for each indicator."""
        found: list[dict[str, Any]] = []
        for column, survey in self._surveyed():
            each: dict[str, Any] = {"name": column.name, "width": column.width}
            if column.kind == "words":
                each = {"name": column.name, "width": max(1, len(survey.words)), "words": list(survey.words)}
            if (survey.lacks or column.fill is not None) and (filler := self._filler(column, survey)):
                each["filled"] = list(filler)
            found.append(each)
        marked = [column.name for column, survey in self._surveyed() if self._says(survey)]
        return found + [{"name": name, "width": 1, "missing": True} for name in marked]

    def _surveyed(self) -> list[tuple[Column, Survey]]:
        return list(zip(self.columns, self.surveyed or [Survey()] * len(self.columns), strict=True))

    def _says(self, survey: Survey) -> bool:
        has_indicators = self.filling.indicator if self.known is None else self.known.has_indicators
        return has_indicators and survey.lacks

    def _filler(self, column: Column, survey: Survey) -> tuple[float, ...]:
        """The values that replace a missing one of a column; none if it is an error, or 0 for all columns."""
        if survey.means and (self.known is not None or self.filling.of(column) == MEAN):
            return survey.means
        if column.fill is None or column.fill == MEAN:
            return ()
        if column.kind == "words":
            return tuple(float(word == column.fill) for word in survey.words) or (0.0,)
        return (float(column.fill),) * column.width

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes; none if labels are numbers."""
        return self.surveyed[0].words if self.array == "label" and self.surveyed else ()

    @property
    def numbers(self) -> list[int]:
        """Numbers of the columns that are read: of the array, and of the ids."""
        return [column.number for column in self.columns] + ([] if self.ids is None else [self.ids])

    def rows(self, blocks: Iterator[CellBlock]) -> Iterator[CellBlock]:
        """Blocks in pieces whose values have a bounded size, however many features a word becomes."""
        return (piece for block in blocks for piece in block.pieces(self.num_columns))

    def values(self, block: CellBlock) -> NDArray[Any]:
        """(num_rows, num_columns) numbers, or words of a split, of a block with the columns :attr:`numbers`.

        Raises:
            InputError: a cell cannot be read; the message names the line and the column.
        """
        if self.parts:
            return self._codes(block)[:, None]
        if self.array == "split" and self.columns[0].kind == "words":
            names = block.columns[0].words()
            return np.array([*names, b""], object)[:-1, None]
        found: list[NDArray[np.float64]] = []
        marks: list[NDArray[np.float64]] = []
        for at, (column, survey) in enumerate(self._surveyed()):
            values = (
                self._categories(column, block, at, survey)
                if column.kind == "words"
                else cell_numbers(self.table, column, block, at)
            )
            if self.array == "feature":
                is_missing = np.isnan(values)
                if is_missing.any():
                    self._fill(column, survey, values, is_missing, block)
                if self._says(survey):
                    marks.append(np.asarray(is_missing.any(axis=1), np.float64)[:, None])
            found.append(values)
        return np.concatenate([*found, *marks], axis=1)

    def _categories(self, column: Column, block: CellBlock, at: int, survey: Survey) -> NDArray[np.float64]:
        """(num_rows, 1) classes, or (num_rows, num_words) zeros and ones, NaN for missing ones.

        Raises:
            InputError: a word is not a category or class of the stored vertex data.
        """
        import pyarrow as pa  # noqa: PLC0415 - only words need it
        import pyarrow.compute as pc  # noqa: PLC0415

        known = pa.array([word.encode() for word in survey.words], pa.large_binary())
        codes = pc.index_in(block.columns[at].words().to_arrow(), value_set=known).fill_null(-1)
        numbers: NDArray[np.int64] = codes.to_numpy(zero_copy_only=False).astype(np.int64)
        is_strict = self.array == "label" or (self.filling.of(column) == ERROR and not survey.means)
        if self.known is not None and is_strict:
            self._check_words(column, block, at, numbers, self.known)
        if self.array == "label":
            return numbers[:, None].astype(np.float64)
        values: NDArray[np.float64] = (numbers[:, None] == np.arange(max(1, len(survey.words)))).astype(np.float64)
        values[numbers < 0] = np.nan
        return values

    def _check_words(
        self, column: Column, block: CellBlock, at: int, numbers: NDArray[np.int64], known: KnownColumns
    ) -> None:
        names = block.columns[at].words()
        for row in np.flatnonzero(numbers < 0).tolist():
            word = names.name(row)
            if word.lower() not in UNKNOWN:
                what = "class" if self.array == "label" else "category"
                remedy = "" if self.array == "label" else "; `--missing 0` stores zeros for it"
                reason = f"{word.decode('utf-8', 'replace')!r} is not a {what} of {known.where}{remedy}"
                raise self.table.error(int(block.at[row]), column.number, reason)

    def _fill(
        self, column: Column, survey: Survey, values: NDArray[np.float64], missing: NDArray[np.bool_], block: CellBlock
    ) -> None:
        """Fill missing features in place.

        Raises:
            InputError: they are errors.
        """
        filler = self._filler(column, survey)
        if not filler and self.filling.of(column) != ZERO:
            row = int(np.argmax(missing.any(axis=1)))
            how = (
                f"`{shell_command(column.name, 'else', 0)}` or `else mean` fills it, and `--missing 0` or"
                " `--missing mean` all columns"
            )
            if self.known is not None:
                how = f"none of the column was in {self.known.where}; `--missing 0` fills it"
            raise self.table.error(int(block.at[row]), column.number, f"a value is missing; {how}")
        filler = filler or (0.0,) * values.shape[1]
        values[:] = np.where(missing, np.array(filler), values)

    def _codes(self, block: CellBlock) -> NDArray[np.float64]:
        """Codes of a split from one mask for each part."""
        codes = np.full(len(block.at), SPLIT["none"], np.float64)
        for at, (column, part) in enumerate(zip(self.columns, self.parts, strict=True)):
            chosen = cell_numbers(self.table, column, block, at)[:, 0] > 0
            clash = chosen & (codes != SPLIT["none"])
            if clash.any():
                place = int(block.at[int(np.argmax(clash))])
                raise self.table.error(place, column.number, "the vertex is in another part of the split already")
            codes[chosen] = SPLIT[part]
        return codes

    def value_error(self, at: int, column: int) -> InputError:
        """The error for a value that the array cannot hold.

        Args:
            at: place of the row in the table.
            column: number of the stored column.
        """
        ends = np.cumsum([each.width for each in self.columns])
        number = min(int(np.searchsorted(ends, column, side="right")), len(self.columns) - 1)
        return self.table.error(at, self.columns[number].number, f"expected {VERTEX_ARRAYS[self.array].expected}")

    # Archives

    def stored_arrays(self) -> tuple[StoredArray, ...]:
        """Arrays that may be compressed, as of a ``PackedSource``."""
        return self.table.stored_arrays() if isinstance(self.table, PackedSource) else ()

    def with_unpacked(self, unpacked: Unpacked) -> ChosenColumns:
        return replace(self, table=self.table.with_unpacked(unpacked)) if isinstance(self.table, PackedSource) else self
