"""Finds the entries of training pairs in the rows of one rank, in the numbering of its row shard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.local_numbers import LocalNumbers
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.exchange import by_rank
from gnnloom.trainer.data.target_edges import Entries, PairSource, TargetEntries, read_entries, routed
from gnnloom.trainer.data.vertex_directory import VertexDirectory
from gnnloom.trainer.place.place import Place

#: Number of entries whose vertices are looked up at a time.
_NUMBERED_AT_ONCE: Final = 1 << 18


def row_targets(
    comm: Communicator,
    source: PairSource,
    num_vertices: int,
    vertex: NDArray[np.int64],
    halos: Sequence[NDArray[np.int64]],
    place: Place,
    *,
    weighted: bool,
) -> list[TargetEntries]:
    """Send the entries of all pairs to the ranks that own their rows. Collective.

    Args:
        vertex: (num_own,) int64 ids of this rank's rows by local number.
        halos: (num_halo,) int64 ids of the halo of the adjacency and, if it is another matrix, of its transpose.
        weighted: the adjacency has weights.

    Returns:
        The entries of each matrix, in two blocks: the own columns and the halo's.

    Raises:
        CollectiveError: a pair has no vertex of the graph, could not be read, or has no edge in the shards.
    """
    directory = VertexDirectory(comm, num_vertices, vertex, np.full(len(vertex), comm.rank), place)
    parts: list[list[Entries]] = [[] for _ in halos]
    for read in read_entries(comm, source, num_vertices, weighted=weighted):
        for each, entries in zip(parts, (read, read.transposed), strict=False):
            # The rank that reads a pair does not know the owners of its ends: no rank has a list of all vertices.
            order, counts = by_rank(directory.find(entries.row), comm.size)
            arrived = routed(comm, entries, order, counts, place)
            each.append(arrived.narrowed(num_vertices, source.num_pairs))
    return together(
        comm,
        lambda: [
            _numbered(Entries.joined(each, weighted=weighted), vertex, halo)
            for each, halo in zip(parts, halos, strict=True)
        ],
    )


def _numbered(entries: Entries, vertex: NDArray[np.int64], halo: NDArray[np.int64]) -> TargetEntries:
    """Entries in the numbers of a rank, which replace the vertices in place: new arrays would need memory."""
    own, others, block = LocalNumbers.of(vertex), LocalNumbers.of(halo), np.zeros(len(entries.row), np.int8)
    for start in range(0, len(block), _NUMBERED_AT_ONCE):
        some = slice(start, start + _NUMBERED_AT_ONCE)
        row, column, number = (each[some] for each in entries[:3])
        is_own, is_halo = _has(own, column), _has(others, column)
        if not (is_own | is_halo).all():
            missing = np.flatnonzero(~(is_own | is_halo))[0]
            raise InputError(
                f"pair {number[missing]:,}: vertices {column[missing]} and {row[missing]} have no edge in the shards"
            )
        column[is_own], column[is_halo] = own(column[is_own]), others(column[is_halo])
        row[:], block[some] = own(row), is_halo
    return TargetEntries(entries, block, [(len(vertex), len(vertex)), (len(vertex), len(halo))])


def _has(numbers: LocalNumbers, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(num_ids,) bool, whether each id has a number."""
    ascending = numbers.ascending
    if not len(ascending):
        return np.zeros(len(ids), bool)
    found: NDArray[np.bool_] = ascending[np.minimum(np.searchsorted(ascending, ids), len(ascending) - 1)] == ids
    return found
