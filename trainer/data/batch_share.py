"""A rank's share of the mini-batches of an epoch: its rows, columns, halo and sent rows, restricted to a batch.

The batch of a vertex in an epoch is computed from the seed, the epoch and the vertex, so every rank knows the batches
of its own vertices and of its halo without a message (Demirci, Haldar, Ferhatosmanoglu, PVLDB 16(4), 2022, section
4.3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.sampling.induction import restrict
from gnnloom.storage.sampling.vertex import batch_of
from gnnloom.storage.shards.shard_matrix import ShardMatrix
from gnnloom.trainer.data.adjacency_scaling import degrees, scaling
from gnnloom.trainer.data.batch_data import BatchRows
from gnnloom.trainer.place.place import Place


class Division:
    """Items divided into the batches of an epoch, such as a rank's rows.

    Attributes:
        batch: (count,) int64 batch of each item.
        position: (count,) int64 number of each item in its batch, in the order of the items.
    """

    def __init__(self, batch: NDArray[np.int64], num_batches: int) -> None:
        self.batch = batch
        # Stable, so that the members of a batch ascend.
        self._order = np.argsort(batch, kind="stable")
        self._offset = np.concatenate([[0], np.cumsum(np.bincount(batch, minlength=num_batches))])
        self.position = np.empty(len(batch), np.int64)
        self.position[self._order] = np.arange(len(batch)) - self._offset[batch[self._order]]

    def members(self, batch: int) -> NDArray[np.int64]:
        """(number of members,) int64, ascending."""
        return self._order[self._offset[batch] : self._offset[batch + 1]]


@dataclass(frozen=True)
class _Halo:
    """The columns of other ranks' vertices, restricted to a batch.

    Attributes:
        matrix: the rank's rows in the batch, and the halo's columns in the batch.
        column: (columns in the batch,) int64 numbers in the whole halo, ascending.
        owner: (columns in the batch,) int64 ranks.
    """

    matrix: CSR
    column: NDArray[np.int64]
    owner: NDArray[np.int64]

    def used(self) -> NDArray[np.bool_]:
        """(columns in the batch,) bool, whether each column has a nonzero."""
        found = np.zeros(len(self.column), bool)
        found[self.matrix.indices] = True
        return found

    def wanted(self, num_ranks: int, vertex: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rank's rows that have a nonzero in some column of each rank.

        Args:
            vertex: (num_rows,) int64 global ids of the rows.

        Returns:
            The rows by rank, ordered by id for each rank, as in halos; and (num_ranks + 1,) int64 positions at which
            each rank's rows begin.
        """
        by_id = np.argsort(vertex)
        place = np.empty_like(by_id)
        place[by_id] = np.arange(len(by_id))
        num_rows = max(self.matrix.num_rows, 1)
        rows = np.repeat(place, np.diff(self.matrix.indptr))
        # Sorted here, which is many times faster than ``np.unique``, because that hashes first.
        pairs = np.sort(self.owner[self.matrix.indices] * num_rows + rows)
        rank, found = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], num_rows)
        return by_id[found], np.searchsorted(rank, np.arange(num_ranks + 1))


class EpochShare:
    """A rank's share of all batches of one epoch; any thread may request a batch."""

    def __init__(
        self,
        vertex: NDArray[np.int64],
        matrix: ShardMatrix[CSR],
        transpose: ShardMatrix[CSR],
        num_vertices: int,
        size: int,
        seed: int,
        epoch: int,
    ) -> None:
        """Divide the rank's rows and halo. Communicates nothing.

        Args:
            vertex: (num_own,) int64 global ids of the rank's vertices.
            matrix: the rank's rows of the adjacency.
            transpose: the rows of its transpose; ``matrix`` itself if both are equal.
            num_vertices: number of vertices of the whole graph.
            size: vertices of a batch.
        """
        self._vertex, self._matrix, self._transpose = vertex, matrix, transpose
        self._num_batches = -(-num_vertices // size)

        def divide(vertices: NDArray[np.int64]) -> Division:
            return Division(batch_of(num_vertices, size, seed, epoch, vertices), self._num_batches)

        self._own, self._halo = divide(vertex), divide(matrix.halo_vertex)
        self._transposed_halo = self._halo if transpose is matrix else divide(transpose.halo_vertex)

    def members(self, batch: int) -> NDArray[np.int64]:
        """(num_rows,) int64 local numbers of the rank's vertices in a batch, ascending."""
        return self._own.members(batch)

    def rows(self, batch: int, normalization: str, place: Place) -> BatchRows:
        """The rank's rows of a batch, normalized in the graph that all vertices of the batch induce.

        Args:
            normalization: see :func:`gnnloom.trainer.data.adjacency_scaling.scaling`.

        Raises:
            InputError: a degree is negative or not finite.
        """
        halo = self._restricted_halo(self._matrix, self._halo, batch)
        if self._transpose is self._matrix:
            matrix = transpose = self._restricted(self._matrix, halo, halo, batch)
        else:
            other = self._restricted_halo(self._transpose, self._transposed_halo, batch)
            matrix = self._restricted(self._matrix, halo, other, batch)
            transpose = self._restricted(self._transpose, other, halo, batch)
        sides = scaling("a mini-batch", normalization, degrees(matrix.own, matrix.halo), place)
        return BatchRows(self._vertex[self.members(batch)], matrix, transpose, sides)

    def _restricted_halo(self, matrix: ShardMatrix[CSR], division: Division, batch: int) -> _Halo:
        column, rows = division.members(batch), self.members(batch)
        owner = np.searchsorted(matrix.halo_offset, column, side="right") - 1
        found = restrict(matrix.halo, rows, batch, division.batch, division.position, len(column))
        return _Halo(found, column, owner)

    def _restricted(self, matrix: ShardMatrix[CSR], halo: _Halo, transposed: _Halo, batch: int) -> ShardMatrix[CSR]:
        """One matrix of a batch; what it sends follows from the halo of its transpose."""
        own, rows, used = self._own, self.members(batch), halo.used()
        column = halo.column[used]
        compact = (np.cumsum(used, dtype=np.int32) - 1)[halo.matrix.indices]
        # A row goes to a rank if that rank has a row with a nonzero in its column: a nonzero of the transpose's row.
        send_row, send_offset = transposed.wanted(len(matrix.halo_offset) - 1, self._vertex[rows])
        return ShardMatrix(
            own=restrict(matrix.own, rows, batch, own.batch, own.position, len(rows)),
            halo=replace(halo.matrix, indices=compact, num_columns=len(column)),
            halo_vertex=matrix.halo_vertex[column],
            halo_offset=np.searchsorted(column, matrix.halo_offset),
            send_row=send_row,
            send_offset=send_offset,
        )
