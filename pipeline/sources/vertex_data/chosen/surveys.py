"""Surveys of columns before a table is read: the words of a column, and the means of its numbers.

Tasks survey one range of the table each. The ranges do not depend on the number of workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.sources.reading.times import find_times
from gnnloom.pipeline.sources.source import SourceRange
from gnnloom.pipeline.sources.vertex_data.cells import CellBlock, CellTable
from gnnloom.pipeline.sources.vertex_data.class_names import UNKNOWN
from gnnloom.pipeline.sources.vertex_data.table_columns import Column
from gnnloom.storage.errors import InputError

#: Choices for missing features.
ERROR, ZERO, MEAN = "error", "0", "mean"
#: Most categories of a column of features, unless the user says otherwise.
CATEGORIES: Final = 100


@dataclass(frozen=True)
class Filling:
    """Options for missing features and for words.

    Attributes:
        missing: ``error``; or the fill of missing features, ``0`` or ``mean``.
        indicator: store a further column of zeros and ones for each column that lacks values.
        categories: most different words of a column.
    """

    missing: str = ERROR
    indicator: bool = False
    categories: int = CATEGORIES

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            InputError: a word is unknown; or missing values are errors, so no column can say where they are.
        """
        if str(self.missing) not in {ERROR, ZERO, MEAN}:
            raise InputError(f"--missing {self.missing}: expected error, 0 or mean")
        # The number 0 is meant as well. Fields are frozen, which this bypasses.
        object.__setattr__(self, "missing", str(self.missing))
        if self.indicator and self.missing == ERROR:
            raise InputError("--missing-indicator: choose what missing values become, with `--missing 0` or `mean`")

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters that differ from their defaults."""
        return {name: value for name, value in vars(self).items() if value != getattr(Filling, name)}

    def of(self, column: Column) -> str:
        """The value for a missing one of a column: ``error``, ``mean``, a number, or a category."""
        return self.missing if column.fill is None else column.fill


@dataclass(frozen=True)
class Survey:
    """Facts about a column from the survey of all ranges.

    Attributes:
        words: the words of a column of words, ascending by their bytes.
        means: mean of each stored column; none if it is not needed.
        lacks: whether values are missing.
    """

    words: tuple[str, ...] = ()
    means: tuple[float, ...] = ()
    lacks: bool = False


@dataclass(frozen=True)
class KnownColumns:
    """The columns and classes of stored vertex data, so that others can be stored alike.

    Attributes:
        columns: records of the features; see :attr:`gnnloom.storage.artifacts.vertices.Vertices.feature_columns`.
        class_names: names of the classes; empty if labels are numbers.
        where: the vertex data, for messages.
    """

    columns: tuple[Mapping[str, Any], ...]
    class_names: tuple[str, ...]
    where: str

    @property
    def has_indicators(self) -> bool:
        """Whether some features say where values of a column are missing."""
        return any(each.get("missing") for each in self.columns)


@dataclass(frozen=True)
class ColumnSurveys:
    """The surveys of some columns of a table.

    Attributes:
        table: the table.
        columns: the columns whose words or means are needed.
        filling: options for missing values.
        most_words: most different words of a column.
        remedy: advice about a column with more words, for messages.
    """

    table: CellTable
    columns: tuple[Column, ...]
    filling: Filling
    most_words: int
    remedy: str

    def survey(self, span: SourceRange) -> list[Any]:
        """Words of a range with their counts, or sums and counts of numbers, for each column.

        Raises:
            InputError: a cell cannot be read, or a column has too many words.
        """
        words: list[Counter[str]] = [Counter() for _ in self.columns]
        sums = [np.zeros(column.width) for column in self.columns]
        known = [np.zeros(column.width, np.int64) for column in self.columns]
        rows = 0
        for block in self.table.read(span, [column.number for column in self.columns]):
            rows += len(block.at)
            for at, column in enumerate(self.columns):
                if column.kind != "words":
                    values = cell_numbers(self.table, column, block, at)
                    sums[at] += np.nansum(values, axis=0)
                    known[at] += (~np.isnan(values)).sum(axis=0)
                    continue
                words[at].update(self._counted(column, block.columns[at].words(), block))
                self._check_count(column, words[at])
        return [
            {"rows": rows, "words": dict(words[at]), "sums": sums[at].tolist(), "known": known[at].tolist()}
            for at in range(len(self.columns))
        ]

    def _counted(self, column: Column, names: Names, block: CellBlock) -> dict[str, int]:
        """Counts of the words of a column, without those for missing values."""
        found = {each["values"].as_py(): each["counts"].as_py() for each in names.to_arrow().value_counts()}
        try:
            return {word.decode(): count for word, count in found.items() if word.lower() not in UNKNOWN}
        except UnicodeDecodeError:
            row, reason = names.first_wrong()
            raise self.table.error(int(block.at[max(0, row)]), column.number, reason) from None

    def _check_count(self, column: Column, words: Counter[str]) -> None:
        if len(words) > self.most_words:
            are_dates = find_times([next(iter(words))]) is not None
            dates = "; they are dates: store a number instead, such as the year" if are_dates else ""
            raise InputError(
                f"{self.table.file.location}, column {column.name}: more than {self.most_words:,} different words"
                f"{dates}{self.remedy}"
            )

    def merged(self, found: Sequence[Sequence[Any]]) -> dict[Column, Survey]:
        """The surveys of all ranges together, by column.

        Raises:
            InputError: a column has too many words, or no value at all.
        """
        return {column: self._merged(column, [each[at] for each in found]) for at, column in enumerate(self.columns)}

    def _merged(self, column: Column, parts: Sequence[Mapping[str, Any]]) -> Survey:
        rows, fill = sum(part["rows"] for part in parts), self.filling.of(column)
        if column.kind == "words":
            counts: Counter[str] = Counter()
            for part in parts:
                counts.update(part["words"])
            lacks = counts.total() < rows
            if lacks and fill not in {ERROR, ZERO, MEAN}:
                # Missing words are a category, perhaps one that other rows have too.
                counts[fill] += rows - counts.total()
            self._check_count(column, counts)
            words = tuple(sorted(counts, key=str.encode))
            sums, known = np.array([counts[word] for word in words], float), np.full(len(words), counts.total())
        else:
            words = ()
            sums = np.sum([part["sums"] for part in parts], axis=0)
            known = np.sum([part["known"] for part in parts], axis=0)
            lacks = bool((known < rows).any())
        if not known.all() or not len(known):
            raise InputError(f"{self.table.file.location}, column {column.name}: all values are missing; leave it out")
        return Survey(words, tuple((sums / known).tolist()), lacks)


def cell_numbers(table: CellTable, column: Column, block: CellBlock, at: int) -> NDArray[np.float64]:
    """(num_rows, width) numbers of a column of a block, NaN for missing ones.

    Args:
        at: number of the column in the block.

    Raises:
        InputError: a cell is not a number; the message names the line and the column.
    """
    values, row, reason = block.columns[at].numbers(column.width, is_list=column.kind == "list")
    if row >= 0:
        raise table.error(int(block.at[row]), column.number, reason)
    return values
