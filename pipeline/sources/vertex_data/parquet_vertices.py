"""Features, labels or split codes from a Parquet file with one row per vertex.

Features and targets are all columns. Classes and codes are the only column, or the column named ``label`` or ``split``.
Labels in several columns, none of which is named ``label``, are zeros and ones with one column per class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.sources.reading.files import open_files
from gnnloom.pipeline.sources.reading.label_values import EXPECTED_BINARY, EXPECTED_TARGET, binary_labels, targets
from gnnloom.pipeline.sources.reading.parquet_table import ParquetTable
from gnnloom.storage.artifacts.vertices import NO_LABEL, SPLIT
from gnnloom.storage.errors import InputError

#: Number of values read at a time.
_BLOCK_VALUES = 1 << 20
_MAX_LABEL = np.iinfo(np.int32).max - 1


@dataclass(frozen=True)
class ParquetVertices:
    """One array of vertex data; implements :class:`~gnnloom.pipeline.sources.source.MultilabelSource`.

    Attributes:
        table: the file.
        array: ``feature``, ``label``, ``multilabel``, ``target`` or ``split``.
        columns: names of the columns that are read, in the order of the features.
    """

    table: ParquetTable
    array: str
    columns: tuple[str, ...]

    in_graph_order = False

    @classmethod
    def open(cls, location: str, array: str) -> ParquetVertices:
        """Find the file and read its footer.

        Args:
            array: ``feature``, ``label``, ``target`` or ``split``.

        Raises:
            NotFoundError: the file does not exist.
            InputError: the file is not a Parquet file, a column does not contain numbers, or no column has the name
                of the array.
        """
        files = open_files([location])
        if len(files) != 1:
            raise InputError(f"{location}: expected one file, found {len(files)}")
        table = ParquetTable.open(files[0])
        if array == "label" and len(table.names) > 1 and array not in table.names:
            array = "multilabel"
        single = array in {"label", "split"} and len(table.names) != 1
        columns = (array,) if single else table.names
        table.check_columns(columns, {"split": "iu", "multilabel": "iufb"}.get(array, "iuf"))
        if not columns:
            raise InputError(f"{location}: the table has no columns")
        return cls(table, array, columns)

    @property
    def arrays(self) -> tuple[str, ...]:
        return (self.array,)

    @property
    def random_access(self) -> bool:
        """Rows can be read starting with the row group that contains them."""
        return self.table.file.is_seekable

    def identity(self) -> dict[str, Any]:
        file = self.table.file.identity()
        return {"format": "parquet", "array": self.array, "columns": list(self.columns), "file": file}

    def num_vertices(self) -> int:
        return self.table.num_rows

    def num_features(self) -> int:
        return len(self.columns) if self.array == "feature" else 0

    def num_labels(self) -> int:
        return len(self.columns) if self.array == "multilabel" else 0

    def num_targets(self) -> int:
        return len(self.columns) if self.array == "target" else 0

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
                yield self._converted(array, wanted, first + low)

    def _converted(self, array: str, columns: tuple[NDArray[Any], ...], first: int) -> NDArray[Any]:
        if array == "feature":
            return self._features(columns, first)
        if array == "multilabel":
            return self._multilabels(columns, first)
        if array == "target":
            return self._targets(columns, first)
        values = columns[0].astype(np.float64)
        if array == "label":
            values = np.where(np.isnan(values), NO_LABEL, values)
        low, high = (NO_LABEL, _MAX_LABEL) if array == "label" else (0, max(SPLIT.values()))
        wrong = ~((values >= low) & (values <= high) & (np.floor(values) == values))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise self.table.error(
                self.columns[0], first + row, f"expected a {array} from {low} to {high:,}, found {columns[0][row]}"
            )
        return values.astype(np.int32 if array == "label" else np.uint8)

    def _multilabels(self, columns: tuple[NDArray[Any], ...], first: int) -> NDArray[np.int8]:
        rows = np.empty((len(columns[0]), len(columns)), np.int8)
        for number, column in enumerate(columns):
            found, row = binary_labels(column[:, None])
            if row >= 0:
                raise self.table.error(self.columns[number], first + row, f"{EXPECTED_BINARY}, found {column[row]}")
            rows[:, number] = found[:, 0]
        return rows

    def _targets(self, columns: tuple[NDArray[Any], ...], first: int) -> NDArray[np.float32]:
        rows, wrong = targets(np.stack([column.astype(np.float64) for column in columns], axis=1))
        if wrong >= 0:
            raise self.table.error(self.columns[0], first + wrong, EXPECTED_TARGET)
        return rows

    def _features(self, columns: tuple[NDArray[Any], ...], first: int) -> NDArray[np.float32]:
        with np.errstate(over="ignore"):
            rows = np.stack([column.astype(np.float32) for column in columns], axis=1)
        finite = np.isfinite(rows)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            found = columns[column][row]
            raise self.table.error(self.columns[column], first + int(row), f"expected a finite float32, found {found}")
        return rows
