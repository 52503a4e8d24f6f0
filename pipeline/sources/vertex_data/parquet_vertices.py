"""Features, labels or split codes from a Parquet file with one row per vertex.

A matrix is all columns. An array with one dimension is the only column, or the column with its name.
Labels in several columns without a column ``label`` are zeros and ones with one column per class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.binary.parquet_table import ParquetTable
from gnnloom.pipeline.sources.reading.files import open_file
from gnnloom.pipeline.sources.reading.text_layout import PANDAS_INDEX, names_ids
from gnnloom.pipeline.sources.source import OneArray
from gnnloom.pipeline.sources.understood import Understood, columns_in_words, ids_question, of_vertices
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import VERTEX_ARRAYS, VertexArray, array_in_file

#: Number of values read at a time.
_BLOCK_VALUES = 1 << 20


@dataclass(frozen=True)
class ParquetVertices(OneArray):
    """One array of vertex data; implements :class:`~gnnloom.pipeline.sources.source.VertexSource`.

    Attributes:
        table: the file.
        array: name of the array.
        columns: names of the columns that are read, in the order of the features.
    """

    table: ParquetTable
    array: str
    columns: tuple[str, ...]

    @classmethod
    def open(cls, location: str, array: str) -> ParquetVertices:
        """Find the file and read its footer.

        Args:
            array: the option that names the file.

        Raises:
            NotFoundError: the file does not exist.
            InputError: the file is not a Parquet file, a column does not contain numbers, or no column has the name
                of the array.
        """
        table = ParquetTable.open(open_file(location))
        if array not in table.names:
            array = array_in_file(array, sum(name != PANDAS_INDEX for name in table.names))
        spec = VERTEX_ARRAYS[array]
        # Not the numbers of the rows of a data frame.
        names = tuple(name for name in table.names if name != PANDAS_INDEX)
        columns = names if spec.dims or len(names) == 1 else (array,)
        table.check_columns(columns, spec.kinds + ("s" if spec.text_kinds else ""))
        if not columns:
            raise InputError(f"{table.file.location}: the table has no columns")
        return cls(table, array, columns)

    @property
    def random_access(self) -> bool:
        """Rows can be read starting with the row group that contains them."""
        return self.table.file.is_seekable

    def identity(self) -> dict[str, Any]:
        file = self.table.file.identity()
        return {"format": "parquet", "array": self.array, "columns": list(self.columns), "file": file}

    def num_vertices(self) -> int:
        return self.table.num_rows

    def num_columns(self, array: str) -> int:
        return len(self.columns) if array == self.array else 0

    def understood(self) -> list[Understood]:
        """Describes how the file is read."""
        what, option = columns_in_words(self.columns), VERTEX_ARRAYS[self.array].option
        found = of_vertices(self.table.file.location, "parquet", "Parquet", option, what)
        is_id = self.array == "feature" and len(self.columns) > 1 and names_ids(self.columns[0])
        return [replace(found, question=ids_question(self.columns[0]) if is_id else "")]

    def read_rows(self, array: str, start: int, stop: int) -> Iterator[NDArray[Any]]:
        first_rows = self.table.first_rows
        groups = [
            group
            for group, rows in enumerate(self.table.group_rows)
            if first_rows[group] < stop and first_rows[group] + rows > start
        ]
        rows = max(1, _BLOCK_VALUES // len(self.columns))
        for first, columns in self.table.read(self.columns, groups, rows):
            # Blocks begin with a row group, which may begin before ``start`` and end after ``stop``.
            low, high = max(0, start - first), max(0, stop - first)
            wanted = tuple(column[low:high] for column in columns)
            if len(wanted[0]):
                yield self._converted(VERTEX_ARRAYS[array], wanted, first + low)

    def _converted(self, array: VertexArray, columns: tuple[NDArray[Any], ...], first: int) -> NDArray[Any]:
        rows = np.empty((len(columns[0]), len(columns)), array.dtype)
        for number, column in enumerate(columns):
            values, wrong = array.convert(column[:, None])
            if wrong is not None:
                reason = f"expected {array.expected}, found {column[wrong[0]]}"
                raise self.table.error(self.columns[number], first + wrong[0], reason)
            rows[:, number] = values.reshape(-1)
        return rows if array.dims else rows[:, 0]
