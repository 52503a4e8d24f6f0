"""NumPy arrays with the id of each row's vertex in an array of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gnnloom.pipeline.sources.names import Names
from gnnloom.pipeline.sources.reading.edge_columns import rebatch
from gnnloom.pipeline.sources.reading.files import SourceFile
from gnnloom.pipeline.sources.reading.keyed_rows import KeyedBlock, checked_block, table_ranges
from gnnloom.pipeline.sources.reading.stored_arrays import StoredArray, Unpacked, unpacked_array
from gnnloom.pipeline.sources.source import SourceRange
from gnnloom.storage.errors import InputError

#: Values read at a time.
_BLOCK_VALUES = 1 << 18


@dataclass(frozen=True)
class KeyedNumpy:
    """Rows and their ids; implements :class:`~gnnloom.pipeline.sources.reading.keyed_rows.KeyedRows`.

    Attributes:
        values: (n,) or (n, num_columns) numbers.
        row_ids: (n,) integers or text.
    """

    values: StoredArray
    row_ids: StoredArray

    @classmethod
    def open(cls, values: StoredArray, row_ids: StoredArray) -> KeyedNumpy:
        """Check that the arrays belong together.

        Raises:
            InputError: an array has the wrong shape, dtype or order, or there are not as many ids as rows.
        """
        if len(row_ids.shape) != 1 or row_ids.dtype.kind not in "iuUS":
            raise InputError(
                f"{row_ids}: expected ids, integers or text of shape (n,), found {row_ids.dtype} of shape"
                f" {row_ids.shape}"
            )
        if len(values.shape) not in {1, 2} or values.dtype.kind not in "iufb":
            raise InputError(
                f"{values}: expected numbers of shape (n,) or (n, columns), found {values.dtype} of shape"
                f" {values.shape}"
            )
        if values.fortran_order and 1 not in values.shape and len(values.shape) == 2:
            raise InputError(f"{values}: stored in Fortran order, column by column; save np.ascontiguousarray of it")
        if values.shape[0] != row_ids.shape[0]:
            raise InputError(f"{values}: {values.shape[0]:,} rows, {row_ids} has {row_ids.shape[0]:,} ids")
        return cls(values, row_ids)

    @property
    def file(self) -> SourceFile:
        return self.values.file

    @property
    def ids(self) -> SourceFile | None:
        return self.row_ids.file

    @property
    def num_columns(self) -> int:
        return self.values.shape[1] if len(self.values.shape) == 2 else 1

    def ranges(self) -> Sequence[SourceRange]:
        num_rows = self.values.shape[0]
        # A range of a compressed array can only be read after what precedes it.
        if not (self.values.is_mapped and self.row_ids.is_mapped):
            return [SourceRange(0, 0, num_rows)]
        row_bytes = self.num_columns * self.values.dtype.itemsize + self.row_ids.dtype.itemsize
        return table_ranges(num_rows, num_rows * row_bytes)

    def error(self, at: int, reason: str) -> InputError:
        return InputError(f"{self.values}, row {at:,}: {reason}")

    def blocks(self, span: SourceRange) -> Iterator[KeyedBlock]:
        rows = max(1, _BLOCK_VALUES // self.num_columns)
        columns = self.num_columns
        flat = rebatch(self.values.read_flat(span.start * columns, span.stop * columns), rows * columns)
        ids = rebatch(self.row_ids.read_flat(span.start, span.stop), rows)
        first = span.start
        for values, names in zip(flat, ids, strict=True):
            table, at = values.reshape(-1, columns).astype(np.float64), np.arange(first, first + len(names))
            yield checked_block(KeyedBlock(Names.of_values(np.ascontiguousarray(names)), table, at, self.error))
            first += len(names)

    def stored_arrays(self) -> tuple[StoredArray, ...]:
        """Both arrays; implements :class:`~gnnloom.pipeline.sources.reading.packed.PackedSource`."""
        return self.values, self.row_ids

    def with_unpacked(self, unpacked: Unpacked) -> KeyedNumpy:
        return KeyedNumpy(unpacked_array(self.values, unpacked), unpacked_array(self.row_ids, unpacked))
