"""The input features of a rank's vertices, read from its shard in ranges of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from torch import Tensor

from gnnloom.storage.shards.row_shards import RowShard
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.data.vertex_data import check_finite, check_stored, normalize_feature, settled_feature_norm
from gnnloom.trainer.kernels.dispatch import converted
from gnnloom.trainer.place.arrays import tensor_dtype
from gnnloom.trainer.place.mapped_rows import MappedRows
from gnnloom.trainer.place.place import Place

#: Bytes per read, if all rows are read.
_PART_BYTES: Final = 8 << 20


class ShardFeatures:
    """See :class:`gnnloom.trainer.passes.streamed_layers.Rows`. Features are checked and scaled whenever read."""

    def __init__(self, shard: RowShard, place: Place) -> None:
        """Read nothing yet. Features are not scaled until ``norm`` is set.

        Raises:
            InputError: the shards have no features.
        """
        check_stored(shard, "feature")
        self._shard, self._reader, self._place = shard, shard.array("feature"), place
        #: Scaling of rows; see :func:`gnnloom.trainer.data.vertex_data.normalize_feature`.
        self.norm = "none"

    @property
    def dim(self) -> int:
        return self._reader.shape[1]

    @property
    def chunk_rows(self) -> int:
        """Ranges whose length is a multiple of this number of rows are fastest to read."""
        return self._reader.chunk_rows

    def rows(self, start: int, stop: int) -> Tensor:
        """(stop - start, num_features) of the dtype of features.

        Raises:
            InputError: a feature is not a finite number.
        """
        rows = self._read(start, stop)
        where = f"{self._shard.shards.artifact.path}/{self._shard.prefix}/feature"
        check_finite(rows, where, lambda: self._shard.vertex()[start:stop], self._place)
        return converted(normalize_feature(rows, self.norm, self._place), self._place.feature_dtype, self._place)

    def settle(self, norm: str, comm: Communicator) -> None:
        """Scale rows by ``norm`` from now on; ``auto`` looks at the features of all ranks. Collective."""
        if norm == "auto":
            # Each rank reads its features up to the first negative one.
            negative = together(comm, lambda: any(bool((self._read(*span) < 0).any()) for span in self._ranges()))
            norm = settled_feature_norm(self._place.tensor([-float(negative)], self._place.sum_dtype), norm, comm)
        self.norm = norm

    def copy_to(self, matrix: MappedRows) -> None:
        """Write all rows to a (num_rows, num_features) matrix, piece by piece.

        Raises:
            InputError: a feature is not a finite number.
        """
        for start, stop in self._ranges():
            matrix.write(slice(start, stop), self.rows(start, stop))

    def read_columns(self, columns: slice, matrix: Tensor) -> None:
        """Write some columns of all rows to a (num_rows, number of columns) matrix, piece by piece.

        Raises:
            InputError: a feature is not a finite number.
        """
        for start, stop in self._ranges():
            matrix[start:stop] = self.rows(start, stop)[:, columns]

    def _ranges(self) -> Iterator[tuple[int, int]]:
        size = _PART_BYTES // max(1, self.dim * self._reader.dtype.itemsize)
        yield from self._place.steps(self._reader.ranges(size))

    def _read(self, start: int, stop: int) -> Tensor:
        """Stored rows, in the dtype of sums."""
        stored = self._place.empty((stop - start, self.dim), tensor_dtype(self._reader.dtype))
        self._place.fill(stored, lambda array: self._reader.read(start, stop, array))
        return converted(stored, self._place.sum_dtype, self._place)
