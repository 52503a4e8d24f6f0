"""A rank's share of the mini-batches of an epoch: its rows, columns, halo and what it sends, restricted to a batch.

Which batch of an epoch has a vertex is computed from the seed, the epoch and the vertex, so every rank knows the
batches of its own and of its halo's vertices without a message (Demirci, Haldar, Ferhatosmanoglu, PVLDB 16(4), 2022,
section 4.3).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.row_shards import ShardMatrix
from gnnloom.storage.sampling.induction import restrict
from gnnloom.storage.sampling.vertex import batch_of
from gnnloom.trainer.data.adjacency_scaling import degrees, scaling
from gnnloom.trainer.data.batch_data import BatchRows


class Division:
    """Things divided into the batches of an epoch, such as a rank's rows.

    Attributes:
        batch: (count,) int64 batch of each.
        position: (count,) int64 number of each in its batch, in the order of the things.
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


class EpochShare:
    """A rank's share of all batches of one epoch; any thread may ask for one."""

    def __init__(
        self,
        vertex: NDArray[np.int64],
        matrix: ShardMatrix,
        transpose: ShardMatrix,
        num_vertices: int,
        size: int,
        seed: int,
        epoch: int,
    ) -> None:
        """Divide the rank's rows, halo and sent rows. Communicates nothing.

        Args:
            vertex: (num_own,) int64 global ids of the rank's vertices.
            matrix: the rank's rows of the adjacency.
            transpose: those of its transpose; ``matrix`` itself if both are equal.
            num_vertices: of the whole graph.
            size: vertices of a batch.
        """
        self._vertex = vertex
        num_batches = -(-num_vertices // size)
        self._own = Division(batch_of(num_vertices, size, seed, epoch, vertex), num_batches)
        self._sides: dict[int, tuple[ShardMatrix, Division, Division]] = {}
        for side in (matrix, transpose):
            halo = Division(batch_of(num_vertices, size, seed, epoch, side.halo_vertex), num_batches)
            sent = Division(self._own.batch[side.send_row], num_batches)
            self._sides[id(side)] = side, halo, sent
        self._matrix, self._transpose = matrix, transpose

    def members(self, batch: int) -> NDArray[np.int64]:
        """(num_rows,) int64 local numbers of the rank's vertices in a batch, ascending."""
        return self._own.members(batch)

    def rows(self, batch: int, normalization: str, dtype: np.dtype[Any]) -> BatchRows:
        """The rank's rows of a batch, normalized as the graph that all vertices of the batch induce.

        Args:
            normalization: see :func:`gnnloom.trainer.data.adjacency_scaling.scaling`.

        Raises:
            InputError: a degree is negative or not finite.
        """
        matrix = self._restricted(self._matrix, batch)
        transpose = matrix if self._transpose is self._matrix else self._restricted(self._transpose, batch)
        sides = scaling("a mini-batch", normalization, degrees(matrix.own, matrix.halo), dtype)
        return BatchRows(self._vertex[self.members(batch)], matrix, transpose, sides)

    def _restricted(self, matrix: ShardMatrix, batch: int) -> ShardMatrix:
        _, halo, sent = self._sides[id(matrix)]
        own, rows = self._own, self.members(batch)
        columns, sends = halo.members(batch), sent.members(batch)
        # Senders and receivers keep the same vertices of a list in the same order, so the lists still fit each other.
        return ShardMatrix(
            own=restrict(matrix.own, rows, batch, own.batch, own.position, len(rows)),
            halo=restrict(matrix.halo, rows, batch, halo.batch, halo.position, len(columns)),
            halo_vertex=matrix.halo_vertex[columns],
            halo_offset=np.searchsorted(columns, matrix.halo_offset),
            send_row=own.position[matrix.send_row[sends]],
            send_offset=np.searchsorted(sends, matrix.send_offset),
        )
