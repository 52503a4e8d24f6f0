"""Owners: the rank of each vertex, or of each pair.

Descriptions of a run import this module, so it imports neither torch nor MPI.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.matrix.ranges import Span, range_of, split_range


class Owners(Protocol):
    """Owner of each vertex: the (n,) int32 array of a partition, or an object that computes its entries."""

    def __getitem__(self, vertices: NDArray[np.int64], /) -> NDArray[np.int32]:
        """(num_vertices,) int32 ranks of some vertices. All ranks ask equally often, as an answer may take messages."""
        ...


@dataclass(frozen=True)
class RangeOwners:
    """Owners of even ranges of numbers, of vertices or of pairs; see :func:`split_range`.

    Attributes:
        size: count of the numbers, which begin at 0.
        num_ranks: number of ranks.
    """

    size: int
    num_ranks: int

    def __getitem__(self, numbers: NDArray[np.int64], /) -> NDArray[np.int32]:
        """See :class:`Owners`. Communicates nothing."""
        return range_of(max(self.size, 1), self.num_ranks, numbers).astype(np.int32)


class EndOwners:
    """Owners of the ends of pairs in one numbering, sources first: each rank has a range of sources, and of targets.

    So all ranks have sources, and the pairs of their sources.
    """

    def __init__(self, first_target: int, num_ends: int, size: int) -> None:
        """Communicates nothing.

        Args:
            first_target, num_ends: see :class:`gnnloom.storage.artifacts.links.Links`.
            size: number of ranks.
        """
        self._first, self._num_ends, self._size = first_target, num_ends, size
        self._source, self._target = RangeOwners(first_target, size), RangeOwners(num_ends - first_target, size)

    def __getitem__(self, vertices: NDArray[np.int64], /) -> NDArray[np.int32]:
        """See :class:`Owners`. Communicates nothing."""
        is_source = vertices < self._first
        return np.where(is_source, self._source[vertices], self._target[vertices - self._first])

    def spans(self, rank: int) -> tuple[Span, Span]:
        """First and last (exclusive) source of a rank, and target."""
        start, stop = split_range(self._num_ends - self._first, self._size, rank)
        return split_range(self._first, self._size, rank), (start + self._first, stop + self._first)

    def of(self, rank: int) -> NDArray[np.int64]:
        """(num_own,) int64 the vertices of a rank, ascending."""
        return np.concatenate([np.arange(*span) for span in self.spans(rank)])
