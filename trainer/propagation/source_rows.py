"""Reads the values to propagate: a rank's rows of the features, or of the known classes, a few rows per read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np

from gnnloom.storage.artifacts.propagated import num_blocks
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import SPLIT
from gnnloom.storage.shards.row_shards import RowShard, RowShards
from gnnloom.trainer.propagation.column_store import ColumnStore, Floats, columns_of

#: Number of rows that are read at a time if they go to memory.
_ROWS: Final = 1 << 14


class SourceRows(Protocol):
    """A rank's rows of a matrix, which is not in memory."""

    num_rows: int
    num_columns: int
    chunk_rows: int

    def rows(self, start: int, stop: int) -> Floats:
        """(stop - start, num_columns) float32."""
        ...


class FeatureRows:
    """The features of a rank's vertices."""

    def __init__(self, shard: RowShard) -> None:
        """Open the array."""
        _check_has(shard, "feature")
        self._shard, self._array = shard, shard.array("feature")
        self.num_rows, self.num_columns = self._array.shape
        self.chunk_rows = self._array.chunk_rows

    def rows(self, start: int, stop: int) -> Floats:
        """(stop - start, num_columns) float32.

        Raises:
            InputError: a feature is not a finite number, or not finite as float32.
        """
        with np.errstate(over="ignore"):
            found = self._array.read(start, stop).astype(np.float32, copy=False)
        if not np.isfinite(found).all():
            row = start + int(np.flatnonzero(~np.isfinite(found).all(axis=1))[0])
            vertex = int(self._shard.array("vertex").read(row, row + 1)[0])
            raise InputError(f"{self._array.where}: vertex {vertex} has a feature that is not a finite number")
        return found


class LabelRows:
    """A one for the class of every training vertex, zeros elsewhere."""

    def __init__(self, shard: RowShard) -> None:
        """Open the arrays."""
        _check_has(shard, "label")
        _check_has(shard, "split")
        self._label, self._split = shard.array("label"), shard.array("split")
        self.num_rows, self.num_columns = len(self._label), shard.shards.num_classes
        self.chunk_rows = self._label.chunk_rows

    def rows(self, start: int, stop: int) -> Floats:
        """(stop - start, num_classes) float32."""
        label, split = self._label.read(start, stop), self._split.read(start, stop)
        found = np.zeros((stop - start, self.num_columns), np.float32)
        known = np.flatnonzero((split == SPLIT["train"]) & (label >= 0))
        found[known, label[known]] = 1
        return found


@dataclass(frozen=True)
class Propagable:
    """A matrix that can be propagated.

    Attributes:
        open: opens a rank's rows; raises InputError if the shards lack an array.
        width: its number of columns.
    """

    open: Callable[[RowShard], SourceRows]
    width: Callable[[RowShards], int]


#: The matrices by name.
PROPAGABLE: Final[Mapping[str, Propagable]] = MappingProxyType(
    {
        "feature": Propagable(FeatureRows, lambda shards: shards.num_features),
        "label": Propagable(LabelRows, lambda shards: shards.num_classes),
    }
)


def _check_has(shard: RowShard, name: str) -> None:
    if name not in shard:
        artifact = shard.shards.artifact.path
        dataset = artifact.parent.parent.name
        raise InputError(
            f"{artifact}: the shards have no {name}; add one with `gnnloom features {dataset} ...` (or ingest a source"
            " that has it) and run `gnnloom shard` again"
        )


class SourceColumns:
    """Columns of a matrix that is stored in rows.

    If all columns are wanted at once, they are read from the rows. Otherwise one pass over the rows writes every block
    of columns to a separate file.
    """

    def __init__(self, source: SourceRows, folder: Path) -> None:
        """Read nothing yet.

        Args:
            folder: for the files.
        """
        self._source = source
        self.store = ColumnStore(folder, source.num_rows, source.num_columns, source.chunk_rows)
        self._written = False

    def prepare(self, blocks: Sequence[int], width: int) -> None:
        """Write the blocks of columns that will be read, unless all blocks are read at once.

        Args:
            width: blocks that are read at a time.
        """
        source = self._source
        if len(blocks) <= width and len(blocks) == num_blocks(source.num_columns):
            return
        for start, stop in self.store.tiles():
            self.store.write_rows(start, source.rows(start, stop), blocks)
        self._written = True

    def read(self, blocks: Sequence[int], out: Floats) -> None:
        """Read consecutive blocks, each once.

        Args:
            out: (num_rows, columns of the blocks), to be filled.
        """
        if self._written:
            self.store.read_columns(blocks, out)
            self.store.drop(blocks)
            return
        columns = columns_of(blocks, self._source.num_columns)
        for start, stop in _ranges(self._source):
            out[start:stop] = self._source.rows(start, stop)[:, columns]


def _ranges(source: SourceRows) -> Iterator[tuple[int, int]]:
    step = max(1, _ROWS // source.chunk_rows) * source.chunk_rows
    for start in range(0, source.num_rows, step):
        yield start, min(start + step, source.num_rows)
