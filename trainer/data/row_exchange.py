"""Rows of any vertices from the ranks that own them: one exchange of ids, one of rows, and a cache of frequent rows.

Like the distributed feature store of DistDGL (Zheng et al., "DistDGL: Distributed Graph Neural Network Training for
Billion-Scale Graphs", IA3 2020), but without servers: all ranks ask and answer at the same time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.exchange import BlockExchange, by_rank
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.owners import Owners
from gnnloom.trainer.place.place import Place


class RowExchange:
    """Fetches rows of a (n, dim) matrix that is spread over the ranks by vertices."""

    def __init__(
        self,
        comm: Communicator,
        own: Callable[[NDArray[np.int64]], NDArray[np.int64]],
        rows: Tensor,
        owner: Owners | None,
        place: Place,
    ) -> None:
        """Keep this rank's rows. Communicates nothing.

        Args:
            own: finds the rows of this rank's vertices; see :class:`gnnloom.storage.matrix.local_numbers.LocalNumbers`.
            rows: (num_own, dim) their rows.
            owner: rank of every vertex; None if this rank owns all.
        """
        self._comm, self._own, self._rows = comm, own, rows
        self._owner, self._place = owner, place
        #: Ids of the cached rows, ascending, and -1, which no vertex has.
        self._cached = np.array([-1])
        self._cached_rows = rows[:0]

    @property
    def nothing(self) -> Tensor:
        """(0, dim) rows of no vertex."""
        return self._rows[:0]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self._rows.shape[1] * self._rows.element_size()

    def local(self, vertices: NDArray[np.int64]) -> Tensor:
        """(num_vertices,) int64 which of this rank's rows belong to some of its vertices."""
        return self._place.from_numpy(self._own(vertices))

    def is_remote(self, vertices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(num_vertices,) bool, whether another rank owns each vertex."""
        if self._owner is None:
            return np.zeros(len(vertices), np.bool_)
        return np.asarray(self._owner[vertices] != self._comm.rank)

    def cache(self, vertices: NDArray[np.int64]) -> None:
        """Cache the rows of these vertices, which other ranks own, from now on. Collective.

        Args:
            vertices: (num_cached,) int64, ascending.
        """
        self._cached_rows = self.fetch(vertices)
        self._cached = np.append(vertices, -1)

    def fetch(self, vertices: NDArray[np.int64]) -> Tensor:
        """The rows of any vertices. Collective; ranks may ask for different numbers of vertices, also for none.

        Args:
            vertices: (num_vertices,) int64, each at most once.

        Returns:
            (num_vertices, dim).
        """
        out = self._place.empty((len(vertices), self._rows.shape[1]), self._rows.dtype)
        if self._owner is None:
            return torch.index_select(self._rows, 0, self.local(vertices), out=out)
        owner = self._owner[vertices]
        remote = owner != self._comm.rank
        at = self._place.from_numpy
        out[at(np.flatnonzero(~remote))] = self._rows[self.local(vertices[~remote])]
        places = np.flatnonzero(remote)
        position = np.searchsorted(self._cached[:-1], vertices[places])
        known = self._cached[position] == vertices[places]
        out[at(places[known])] = self._cached_rows[at(position[known])]
        asked = places[~known]
        # By owner, so that the rows of each owner are contiguous.
        owner = owner[asked]
        order, counts = by_rank(owner, self._comm.size)
        blocks = BlockExchange(self._comm, counts, self._place, Kind.ROW_IDS)
        ids = blocks.forth(vertices[asked[order]])
        sent = self._place.empty((len(ids), self._rows.shape[1]), self._rows.dtype)
        torch.index_select(self._rows, 0, self.local(ids), out=sent)
        out[at(asked[order])] = blocks.back(sent, Kind.ROWS)
        return out

    def give_back(self, vertices: NDArray[np.int64], gradient: Tensor) -> tuple[Tensor, Tensor]:
        """The adjoint of :meth:`fetch`: gradients of fetched rows go to the ranks that own the rows. Collective.

        Cached rows are copies that nobody updates, so gradients go to the owners of all vertices.

        Args:
            vertices: (num_vertices,) int64, as they were fetched.
            gradient: (num_vertices, dim) gradients of their rows.

        Returns:
            (num_given,) int64 which of this rank's rows the ranks have fetched, a row as often as ranks have, and
            (num_given, dim) the gradients. Both are ordered by sender, and for each sender in the order of its
            ``vertices``: sums in this order have the same bits in every run.
        """
        if self._owner is None:
            return self.local(vertices), gradient
        order, counts = by_rank(self._owner[vertices], self._comm.size)
        blocks = BlockExchange(self._comm, counts, self._place, Kind.ROW_IDS)
        ids = blocks.forth(vertices[order])
        sent = self._place.empty(gradient.shape, gradient.dtype)
        torch.index_select(gradient, 0, self._place.from_numpy(order), out=sent)
        rows = blocks.forth(sent, Kind.ROW_GRADIENTS)
        return self.local(ids), rows
