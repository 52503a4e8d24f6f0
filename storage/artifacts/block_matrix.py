"""A matrix that is stored as CSR blocks of rows: the adjacency of a graph, or of one relation of a graph with types.

A[i, j] is the edge j -> i, so row i lists the vertices that vertex i gathers from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.csr_group import Window, write_csr_group
from gnnloom.storage.artifacts.offsets import check_offsets, read_offsets
from gnnloom.storage.disk.groups import write_group
from gnnloom.storage.errors import BudgetError, CorruptError
from gnnloom.storage.format.array_metadata import DEFAULT_CODEC
from gnnloom.storage.format.arrays import ArrayReader, ArrayRecord, ReadCounter, write_array
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.format.growing_array import GrowingArray
from gnnloom.storage.matrix.csr import CSR, index_dtype
from gnnloom.storage.wording import counted

if TYPE_CHECKING:
    import scipy.sparse


class BlockMatrix:
    """A matrix of an artifact, read one block of rows at a time.

    Attributes:
        artifact: the artifact.
        prefix: beginning of the paths of the matrix's arrays: empty, or a folder and a slash.
        num_rows, num_columns: shape of the matrix.
        nnz: number of nonzeros.
        weighted: whether the nonzeros have weights.
        has_times: whether the nonzeros have times. Only :meth:`times` reads times: to everything else, the nonzeros
            have no weights.
        time_unit: unit of times that are whole numbers; empty for others.
        parallel: nonzeros at the place of an earlier one; only relations have some.
        block_rows: (num_blocks + 1) first row of each block, then the number of rows.
        block_nnz: (num_blocks) nonzeros of each block.
    """

    def __init__(self, artifact: Artifact, prefix: str, shape: tuple[int, int], facts: Mapping[str, Any]) -> None:
        """Take the matrix's facts from a manifest.

        Args:
            facts: of the matrix, in the manifest.

        Raises:
            CorruptError: the blocks do not add up to the matrix.
            KeyError, TypeError: a fact is missing, or of another type.
        """
        self.artifact, self.prefix = artifact, prefix
        self.num_rows, self.num_columns = shape
        self.nnz: int = facts["nnz"]
        self.weighted: bool = facts["weighted"]
        self.has_times: bool = facts.get("has_times", False)
        self.time_unit: str = facts.get("time_unit", "")
        self.parallel: int = facts.get("parallel", 0)
        self.block_rows: list[int] = facts["block_rows"]
        self.block_nnz: list[int] = facts["block_nnz"]
        where, rows, nonzeros = f"{self.where}: block_rows", self.block_rows, self.block_nnz
        check_offsets(where, np.asarray(rows, np.int64), self.num_rows)
        if len(rows) != len(nonzeros) + 1:
            raise CorruptError(f"{where}: {len(rows)} for {counted(len(nonzeros), 'block')}")
        if sum(nonzeros) != self.nnz:
            raise CorruptError(
                f"{self.where}: blocks of {counted(sum(nonzeros), 'nonzero')} in all, the manifest says {self.nnz}"
            )

    @property
    def where(self) -> Path:
        """Folder of the matrix, for messages."""
        return self.artifact.path / self.prefix

    def block_path(self, number: int) -> str:
        """Path of a row block in the artifact."""
        return f"{self.prefix}{block_path(number)}"

    @property
    def num_blocks(self) -> int:
        return len(self.block_nnz)

    def block(self, number: int, counter: ReadCounter | None = None) -> CSR:
        """Read one block of rows; ``counter`` counts the bytes read."""
        weights = self.weights(number, counter)
        return CSR(
            row_offset=self.block_rows[number],
            indptr=self.pointers(number, counter),
            indices=self.columns(number, counter).read(),
            data=None if weights is None else weights.read(),
            num_columns=self.num_columns,
        )

    def pointers(self, number: int, counter: ReadCounter | None = None) -> NDArray[np.int64]:
        """(num_rows + 1,) int64 row pointers of one block.

        Raises:
            CorruptError: they do not ascend from 0 to the number of nonzeros, or there are too few or too many.
        """
        stored, num_rows = self.stored_pointers(number, counter), self.block_rows[number + 1] - self.block_rows[number]
        if len(stored) != num_rows + 1:
            raise CorruptError(f"{stored.where}: {counted(len(stored) - 1, 'row')}, the manifest says {num_rows}")
        return read_offsets(stored, self.stored_nonzeros(number))

    def stored_pointers(self, number: int, counter: ReadCounter | None = None) -> ArrayReader:
        """Open the row pointers of one block, which nothing has checked."""
        return self.artifact.array(f"{self.block_path(number)}/indptr", counter)

    def stored_nonzeros(self, number: int) -> int:
        """Number of column ids that are stored for one block.

        Raises:
            CorruptError: the manifest says another number.
        """
        path = f"{self.block_path(number)}/indices"
        stored = self.artifact.record(path).shape[0]
        if stored != self.block_nnz[number]:
            raise CorruptError(
                f"{self.artifact.path}/{path}: {counted(stored, 'nonzero')}, the manifest says {self.block_nnz[number]}"
            )
        return stored

    def columns(self, number: int, counter: ReadCounter | None = None) -> ArrayReader:
        """Open the column ids of one block; reading one that is not a column is an error."""
        return self.artifact.array(f"{self.block_path(number)}/indices", counter, bounds=(0, self.num_columns))

    def weights(self, number: int, counter: ReadCounter | None = None) -> ArrayReader | None:
        """Open the weights of one block; None if it has none."""
        name = f"{self.block_path(number)}/data"
        return self.artifact.array(name, counter) if name in self.artifact else None

    def times(self, number: int) -> ArrayReader | None:
        """Open the times of the nonzeros of one block; None if it has none."""
        name = f"{self.block_path(number)}/time"
        return self.artifact.array(name) if name in self.artifact else None

    def blocks(self) -> Iterator[CSR]:
        """Read the blocks in order, one in memory at a time."""
        for number in range(self.num_blocks):
            yield self.block(number)

    def to_scipy(self, max_nnz: int = 200_000_000) -> scipy.sparse.csr_array[Any]:
        """Read the whole matrix into memory, if it fits; all values are 1 if there are no weights.

        Raises:
            BudgetError: the matrix has more than ``max_nnz`` nonzeros.
        """
        from scipy.sparse import csr_array  # noqa: PLC0415 - storage works without SciPy

        if self.nnz > max_nnz:
            raise BudgetError(
                f"{self.where}: {counted(self.nnz, 'nonzero')}, more than max_nnz={max_nnz:,}; read it by block instead"
            )
        blocks = list(self.blocks())
        # Row pointers of a block start at 0, so each block is shifted by the nonzeros before it; int64, as these may
        # exceed 2^31.
        offsets = np.concatenate([[0], np.cumsum(self.block_nnz)]).astype(np.int64)
        indptr = np.concatenate(
            [block.indptr[:-1] + offset for block, offset in zip(blocks, offsets[:-1], strict=True)] + [offsets[-1:]]
        )
        indices = np.concatenate([block.indices for block in blocks]) if blocks else np.empty(0, np.int32)
        values = [block.data if block.data is not None else np.ones(block.nnz, np.float32) for block in blocks]
        data = np.concatenate(values) if values else np.empty(0, np.float32)
        return csr_array((data, indices, indptr), shape=(self.num_rows, self.num_columns))

    def degree(self, start: int = 0, stop: int | None = None) -> NDArray[np.int64]:
        """(stop - start,) int64 number of nonzeros of each row, including the self loop."""
        return self.artifact.array(f"{self.prefix}degree", bounds=(0, self.nnz + 1)).read(start, stop)


def block_path(number: int) -> str:
    """Path of a row block below the folder of its matrix."""
    return f"block/{number:05d}"


class BlockWriter:
    """Writes one row block from consecutive ranges of its nonzeros.

    The bytes do not depend on how the nonzeros are cut into ranges.
    """

    def __init__(
        self,
        root: Path,
        number: int,
        num_columns: int,
        data_dtype: np.dtype[Any] | None,
        codec: str = DEFAULT_CODEC,
        *,
        has_times: bool = False,
        num_rows: int | None = None,
        prefix: str = "",
        values: str = "",
        positions: str = "",
    ) -> None:
        """Begin a block; its values are weights or times.

        Args:
            root: folder of the artifact.
            number: number of the block.
            num_columns: columns of the matrix.
            data_dtype: dtype of the values; None for a pattern.
            num_rows: rows of the whole matrix; by default ``num_columns``.
            prefix: beginning of the paths of the matrix's arrays; see :class:`BlockMatrix`.
            values: name of the array of values; by default ``time`` or ``data``.
            positions: name of an array of positions of the nonzeros; empty for none.
        """
        self._root, self._prefix, self._codec = root, f"{prefix}{block_path(number)}", codec
        self._shape = num_columns if num_rows is None else num_rows, num_columns
        # Every level gets its group, so that any Zarr tool can walk to the arrays. The attributes of the block follow
        # in close, when its number of nonzeros is known.
        write_group(root / prefix / "block", {})
        write_group(root / self._prefix, {})
        self._indices = GrowingArray(root, f"{self._prefix}/indices", index_dtype(num_columns), ("nonzero",), codec)
        self._data: GrowingArray | None = None
        if data_dtype is not None:
            name = values or ("time" if has_times else "data")
            self._data = GrowingArray(root, f"{self._prefix}/{name}", data_dtype, ("nonzero",), codec)
        self._position: GrowingArray | None = None
        if positions:
            path = f"{self._prefix}/{positions}"
            self._position = GrowingArray(root, path, np.dtype(np.int64), ("nonzero",), codec)

    def append(
        self, indices: NDArray[Any], data: NDArray[Any] | None, position: NDArray[np.int64] | None = None
    ) -> None:
        """Add nonzeros.

        Args:
            indices: (count,) column ids, in :func:`gnnloom.storage.matrix.csr.index_dtype` of the number of columns.
            data: (count,) their weights or times; ignored for a pattern.
            position: (count,) their positions, if the block has an array of positions.
        """
        self._indices.append(indices)
        if self._data is not None and data is not None:
            self._data.append(data)
        if self._position is not None and position is not None:
            self._position.append(position)

    def close(self, row_offset: int, indptr: NDArray[np.int64]) -> list[ArrayRecord]:
        """Write the row pointers.

        Args:
            row_offset: index of the block's first row in the matrix.
            indptr: (num_rows + 1,) int64, starting at 0.

        Returns:
            The records of the block's arrays.
        """
        window = Window(row_offset, 0, self._shape)
        write_csr_group(self._root / self._prefix, (len(indptr) - 1, self._shape[1]), int(indptr[-1]), window)
        pointers = write_array(self._root, f"{self._prefix}/indptr", indptr, ("row+1",), codec=self._codec)
        records = [pointers, self._indices.close()]
        return records + [each.close() for each in (self._data, self._position) if each is not None]
