"""Finds a number of any vertex, such as its owner, although no rank knows the numbers of all vertices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.exchange import BlockExchange, by_rank
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.place.place import Place


class VertexDirectory:
    """Every rank keeps the numbers of every P-th vertex, and answers for them.

    Different ranks keep consecutive vertices, because the most frequent vertices often have consecutive ids. Pinar,
    Hendrickson, "Communication Support for Adaptive Computation" (PPSC 2001), has such a directory.
    """

    def __init__(
        self,
        comm: Communicator,
        num_vertices: int,
        vertex: NDArray[np.int64],
        number: NDArray[np.int64],
        place: Place,
    ) -> None:
        """Send the numbers to the ranks that keep them. Collective.

        Args:
            vertex: (num_own,) int64 ids of the vertices whose numbers this rank knows; exactly one rank knows each
                vertex.
            number: (num_own,) int64 numbers of these vertices, 0 or more.
        """
        self._comm, self._place = comm, place
        self._kept = np.full(-(-num_vertices // comm.size), -1, np.int64)
        order, blocks = self._by_keeper(vertex)
        rows = blocks.forth(np.stack([vertex[order], number[order]], 1))
        self._kept[rows[:, 0] // comm.size] = rows[:, 1]

    def find(self, vertex: NDArray[np.int64]) -> NDArray[np.int64]:
        """(num_asked,) int64 numbers of some vertices, -1 for vertices that no rank knows. Collective.

        Args:
            vertex: (num_asked,) int64 ids in 0..num_vertices-1, in any order; repeated ids are sent repeatedly.
        """
        order, blocks = self._by_keeper(vertex)
        asked = blocks.forth(vertex[order])
        found = np.empty_like(vertex)
        found[order] = blocks.back(self._kept[asked // self._comm.size])
        return found

    def _by_keeper(self, vertex: NDArray[np.int64]) -> tuple[NDArray[np.int64], BlockExchange]:
        """The order that sorts vertices by the rank that keeps their numbers, and the exchange with it. Collective."""
        order, counts = by_rank(vertex % self._comm.size, self._comm.size)
        return order, BlockExchange(self._comm, counts, self._place, Kind.SETUP)
