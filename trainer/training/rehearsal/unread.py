"""Row shards before a rank reads them: the shapes of their arrays, without contents."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.stored_csr import BLOCK_ENTRIES, StoredCSR, Sweep
from gnnloom.storage.format.arrays import Array, ArrayReader
from gnnloom.storage.matrix.csr import CSR, index_dtype
from gnnloom.storage.shards.row_cover import CoveredMatrix
from gnnloom.storage.shards.row_shards import CONVERTED_BYTES, RowShard, RowShards
from gnnloom.storage.shards.shard_matrix import ShardMatrix
from gnnloom.trainer.data.open_shards import OpenedShards, OwnRowShard
from gnnloom.trainer.kernels.dispatch import UnreadRows, Unwritten, even_offsets

#: Arrays with a number for each rank, which determine the exchange of rows.
_READ = ("halo_offset", "send_offset")


def unread(opened: OpenedShards, rank: int, memory: Unwritten) -> OpenedShards:
    """The same shards without their contents, except for the numbers of rows that ranks exchange."""
    if isinstance(opened, OwnRowShard):
        return replace(opened, shard=UnreadRowShard(opened.shards, rank, memory, on_disk=opened.shard.on_disk))
    # A job on row shards need not load them.
    from gnnloom.trainer.data.typed_vertices import OpenedTypes  # noqa: PLC0415
    from gnnloom.trainer.training.rehearsal.unread_grid import unread_grid  # noqa: PLC0415

    if isinstance(opened, OpenedTypes):
        from gnnloom.trainer.training.rehearsal.unread_types import UnreadTypes  # noqa: PLC0415

        return replace(opened, shards=UnreadTypes.of_types_in(opened.shards, memory))
    return unread_grid(opened, memory)


class UnreadRowShard(RowShard):
    """A row shard without contents; the rank still exchanges the same rows."""

    def __init__(self, shards: RowShards, rank: int, memory: Unwritten, *, on_disk: bool) -> None:
        super().__init__(shards, rank, None, on_disk=on_disk)
        self._memory = memory

    def read(self, name: str, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
        record = self.shards.artifact.record(f"{self.prefix}/{name}")
        stored = np.dtype(record.dtype)
        found = self._memory.array(record.shape, stored if dtype is None else dtype)
        if found.dtype != stored:
            # Some rows of the stored dtype are there while they are converted.
            num_bytes = math.prod(record.shape) * stored.itemsize
            converted = self._memory.array((min(num_bytes, CONVERTED_BYTES),), np.dtype(np.uint8))
            del converted
        return found

    def array(self, name: str) -> ArrayReader:
        artifact = self.shards.artifact
        return _UnreadArray(artifact.path, artifact.record(f"{self.prefix}/{name}"))

    def operand(self, transpose: bool = False) -> ShardMatrix[CSR | StoredCSR]:
        return _UnreadMatrix(**vars(super().operand(transpose)))

    def covered(self, matrix: ShardMatrix[CSR], transpose: ShardMatrix[CSR]) -> CoveredMatrix:
        """A matrix of at least the memory of a covered one: all rows arrive, and all entries of others are in sums."""
        halo, memory, ids = transpose.halo, self._memory, np.dtype(np.int64)
        # While the covers are computed: three numbers for each row with entries in the columns of another rank, in both
        # matrices, and at most the transpose of the halo.
        listed = [memory.array(each.send_row.shape, ids) for each in (matrix, transpose) for _ in range(3)]
        listed.append(memory.array(halo.indices.shape, halo.indices.dtype))
        del listed
        indices = memory.array(halo.indices.shape, halo.indices.dtype)
        data = None if halo.data is None else memory.array(halo.data.shape, halo.data.dtype)
        send = even_offsets(len(matrix.send_row) + 1, halo.nnz)
        numbers = (memory.array((each.num_columns,), index_dtype(each.num_columns)) for each in (matrix.halo, halo))
        return CoveredMatrix(
            matrix.own,
            matrix.halo,
            matrix.halo_vertex,
            matrix.halo_offset,
            UnreadRows(0, send, indices, data, halo.num_rows, memory, 0),
            memory.array(matrix.send_row.shape, ids),
            matrix.send_offset,
            *numbers,
        )

    def _offsets(self, name: str, total: int) -> NDArray[np.int64]:
        if name.endswith(_READ):
            return super()._offsets(name, total)
        return even_offsets(self.shards.artifact.record(f"{self.prefix}/{name}").shape[0], total)

    def _csr(self, name: str, num_columns: int) -> CSR:
        data = self.read(f"{name}/data") if f"{name}/data" in self else None
        indptr, indices = self._indptr(name), self.read(f"{name}/indices")
        # Rows have entries in columns of another rank if and only if that rank needs them in a transposed product.
        transposed = "" if self.shards.symmetric or name.startswith("transpose/") else "transpose/"
        listed = self.shards.artifact.record(f"{self.prefix}/{transposed}send_row").shape[0]
        return UnreadRows(0, indptr, indices, data, num_columns, self._memory, listed)

    def _stored(self, name: str, num_columns: int) -> StoredCSR:
        return _UnreadOnDisk(self._indptr(name), self._array(f"{name}/indices"), num_columns, self._memory)


class _UnreadArray(ArrayReader):
    """Leaves every array that it should fill unchanged."""

    def read(self, start: int = 0, stop: int | None = None, out: Array | None = None) -> Array:
        stop = len(self) if stop is None else stop
        return np.empty((stop - start, *self.shape[1:]), self.dtype) if out is None else out


class _UnreadMatrix(ShardMatrix[CSR | StoredCSR]):
    """A matrix without ids."""

    def exchanged(self, vertex: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # noqa: ARG002
        nothing = np.zeros((len(self.send_offset) - 1, 2), np.int64)
        return nothing, nothing


class _UnreadOnDisk(StoredCSR):
    """A matrix on disk; its sweeps have the buffers of the blocks that are on their way."""

    def __init__(self, indptr: NDArray[np.int64], entries: ArrayReader, num_columns: int, memory: Unwritten) -> None:
        super().__init__(indptr, entries, None, num_columns)
        self._memory = memory

    def sweep(self, num_buffers: int = 1) -> Sweep:
        return _UnreadSweep(self, num_buffers, self._memory)


class _UnreadSweep(Sweep):
    """The buffers of a sweep."""

    def __init__(self, matrix: StoredCSR, num_buffers: int, memory: Unwritten) -> None:
        (entries,) = matrix.entries
        chunk = entries.chunk_rows
        # A block may begin and end inside a chunk. Of a small matrix, nothing is written beyond its last chunk.
        most = min(-(-matrix.nnz // max(1, chunk)) * chunk, BLOCK_ENTRIES + 2 * chunk)
        self._buffers = memory.array((num_buffers * most,), entries.dtype)
