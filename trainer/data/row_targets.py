"""The entries of training pairs in the rows of one rank, as its row shard numbers them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.local_numbers import LocalNumbers
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.data.target_edges import Entries, PairSource, TargetEntries, read_entries, routed
from gnnloom.trainer.data.vertex_directory import VertexDirectory
from gnnloom.trainer.place.place import Place


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
    if place.rehearses:
        return [_rehearsed(comm, source, len(vertex), len(halo), weighted=weighted) for halo in halos]
    directory = VertexDirectory(comm, num_vertices, vertex, np.full(len(vertex), comm.rank), place)
    parts: list[list[Entries]] = [[] for _ in halos]
    for read in read_entries(comm, source, num_vertices, weighted=weighted):
        for each, entries in zip(parts, (read, read.transposed), strict=False):
            # Whoever reads a pair knows neither owner: no rank has a list of all vertices.
            owner = directory.find(entries.row)
            order, counts = np.argsort(owner, kind="stable"), np.bincount(owner, minlength=comm.size)
            each.append(routed(comm, entries, order, counts, place))
    found = [Entries.joined(each, weighted=weighted) for each in parts]
    parts.clear()
    return together(comm, lambda: [_numbered(each, vertex, halo) for each, halo in zip(found, halos, strict=True)])


def _rehearsed(comm: Communicator, source: PairSource, num_own: int, num_halo: int, *, weighted: bool) -> TargetEntries:
    """As many entries as this rank would get if all ranks got equally many, anywhere in its rows."""
    start, stop = split_range(source.num_pairs, comm.size, comm.rank)
    rng, count = np.random.default_rng(comm.rank), (2 if source.symmetric else 1) * (stop - start)
    # What the training keeps of each pair, and, for the moment, what has arrived in parts.
    row, place = rng.integers(0, max(num_own, 1), count), rng.integers(0, max(num_own + num_halo, 1), count)
    weight = np.ones(count) if weighted else None
    arrived = Entries.joined([Entries(row, place, rng.integers(0, source.num_pairs, count), weight)], weighted=weighted)
    is_halo = place >= num_own
    numbered = arrived._replace(column=np.where(is_halo, place - num_own, place))
    return TargetEntries(numbered, is_halo.astype(np.int8), [(num_own, num_own), (num_own, num_halo)])


def _numbered(entries: Entries, vertex: NDArray[np.int64], halo: NDArray[np.int64]) -> TargetEntries:
    own, others = LocalNumbers.of(vertex), LocalNumbers.of(halo)
    is_own, is_halo = _has(own, entries.column), _has(others, entries.column)
    if not (is_own | is_halo).all():
        missing = np.flatnonzero(~(is_own | is_halo))[0]
        raise InputError(
            f"pair {entries.number[missing]:,}: vertices {entries.column[missing]} and {entries.row[missing]} have no"
            " edge in the shards"
        )
    column = np.empty_like(entries.column)
    column[is_own], column[is_halo] = own(entries.column[is_own]), others(entries.column[is_halo])
    numbered = entries._replace(row=own(entries.row), column=column)
    return TargetEntries(numbered, is_halo.astype(np.int8), [(len(vertex), len(vertex)), (len(vertex), len(halo))])


def _has(numbers: LocalNumbers, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(num_ids,) bool, whether each id has a number."""
    ascending = numbers.ascending
    if not len(ascending):
        return np.zeros(len(ids), bool)
    found: NDArray[np.bool_] = ascending[np.minimum(np.searchsorted(ascending, ids), len(ascending) - 1)] == ids
    return found
