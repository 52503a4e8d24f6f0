"""Keeps the edges of training pairs on the ranks whose rows or blocks have them, for steps that exclude some edges.

Every rank reads 1/P of the pairs, some at a time, and sends their entries of the adjacency to the ranks that multiply
by them. A step then excludes entries without a message, because any rank can tell which pairs the step takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.csr import CSR, cast_ids, index_dtype
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.storage.matrix.removal import entry_positions, without_entries
from gnnloom.storage.shards.row_cover import CoveredMatrix
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.exchange import BlockExchange
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.kernels.dispatch import SparseRows, listed_entries
from gnnloom.trainer.place.place import Place

#: From (k,) int64 numbers of pairs, (k,) bool whether a step excludes each pair; the same on all ranks.
Chosen = Callable[[NDArray[np.int64]], NDArray[np.bool_]]

#: From (k,) int64 numbers of pairs, (k,) int64 number of the step of an epoch that takes each pair.
StepOf = Callable[[NDArray[np.int64]], NDArray[np.int64]]
#: Number of pairs per call of a choice.
_CHOSEN_AT_ONCE: Final = 1 << 16
#: If the range of the numbers is this many times wider than their count, distinct numbers are found by sorting.
_SPARSE: Final = 4
#: Number of pairs that a rank reads at a time, and sends on before it reads more.
_PAIRS_READ: Final = 1 << 16


@dataclass(frozen=True)
class PairsOfStep:
    """The choice of the pairs of one step of an epoch; see :data:`Chosen`.

    Attributes:
        step_of: the same object in all steps of an epoch, so that each pair is looked up once per epoch.
        step: number of the step.
        num_steps: number of steps of the epoch.
    """

    step_of: StepOf
    step: int
    num_steps: int

    def __call__(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.equal(self.step_of(numbers), self.step)


class PairSource(Protocol):
    """Training pairs; every rank can read any range.

    Attributes:
        num_pairs: number of pairs of all ranks together.
        symmetric: each pair stands for both directions.
        num_entries: approximate number of entries of the adjacency that are pairs or, if a step excludes them, reverses
            of pairs.
    """

    @property
    def num_pairs(self) -> int: ...

    @property
    def symmetric(self) -> bool: ...

    @property
    def num_entries(self) -> int: ...

    def targets(
        self, read: Callable[[], Sequence[Targets]], state: Callable[[StateTargets], Sequence[Targets]]
    ) -> Sequence[Targets]:
        """The entries of the pairs in the blocks of some matrices. Collective.

        Args:
            read: reads the pairs, and sends their entries to the ranks that need them.
            state: makes entries from the share of all entries in every block, for pairs with a number and no values.
        """
        ...

    def read(self, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Pairs ``start`` to ``stop``: (k, 2) int64 source and target, and (k,) the weights of their edges.

        The edge of the pair (u, v) is the entry A[v, u] of the adjacency. Weight 0 means that the entry does not exist.
        Weights of shape (k, 2) belong to the edges and to their reverses, which a step also excludes.
        """
        ...


class Entries(NamedTuple):
    """Entries of a matrix for pairs.

    Attributes:
        row, column: (k,) int64, or int32 once they are :meth:`narrowed`.
        number: (k,) likewise, numbers of the pairs.
        weight: (k,) float64; None without weights.
    """

    row: NDArray[Any]
    column: NDArray[Any]
    number: NDArray[Any]
    weight: NDArray[np.float64] | None

    @property
    def transposed(self) -> Entries:
        return self._replace(row=self.column, column=self.row)

    def take(self, which: NDArray[Any]) -> Entries:
        """Entries at the given positions, or where a mask is True."""
        return Entries(*(None if each is None else each[which] for each in self))  # type: ignore[arg-type]

    def narrowed(self, num_vertices: int, num_pairs: int) -> Entries:
        """The same entries in half of the memory, if all numbers are small enough."""
        row, column = (cast_ids(each, num_vertices) for each in self[:2])
        return self._replace(row=row, column=column, number=cast_ids(self.number, num_pairs))

    @classmethod
    def joined(cls, parts: list[Entries], *, weighted: bool) -> Entries:
        """All entries of several parts; the list is empty afterwards, because both would take twice the memory."""
        ids = np.empty(0, parts[0].row.dtype if parts else np.int64)
        none = cls(ids, ids, ids, np.empty(0) if weighted else None)
        columns = [list(each) for each in zip(none, *parts, strict=True)]
        parts.clear()
        found = []
        while columns:
            column = columns.pop(0)
            found.append(None if column[0] is None else np.concatenate(column))
        return cls(*found)  # type: ignore[arg-type]


def read_entries(comm: Communicator, source: PairSource, num_vertices: int, *, weighted: bool) -> Iterator[Entries]:
    """Entries of this rank's share of the pairs, in the same number of pieces on every rank. Collective.

    Args:
        weighted: keep the weights of the edges.

    Yields:
        Entries of the adjacency, by vertex.

    Raises:
        CollectiveError: a pair has no vertex of the graph, or could not be read.
    """
    start, stop = split_range(source.num_pairs, comm.size, comm.rank)
    longest = -(-source.num_pairs // comm.size)
    for step in range(0, longest, _PAIRS_READ):
        first, last = min(start + step, stop), min(start + step + _PAIRS_READ, stop)
        entries = together(comm, partial(_read, source, first, last, num_vertices))
        yield entries if weighted else entries._replace(weight=None)


def _read(source: PairSource, first: int, last: int, num_vertices: int) -> Entries:
    pair, weight = source.read(first, last)
    if len(pair) and (int(pair.min()) < 0 or int(pair.max()) >= num_vertices):
        raise InputError(
            f"pairs {first:,} to {last - 1:,}: vertices from {pair.min()} to {pair.max()} in a graph of"
            f" {num_vertices:,}"
        )
    parts = []
    for side, own in enumerate(weight.T if weight.ndim > 1 else weight[None]):
        is_edge = own != 0
        number, ends = first + np.flatnonzero(is_edge), pair[is_edge]
        parts.append(Entries(ends[:, 1 - side], ends[:, side], number, own[is_edge].astype(np.float64)))
    entries = Entries.joined(parts, weighted=True) if len(parts) > 1 else parts[0]
    if not source.symmetric:
        return entries
    # A loop is its own reverse.
    reverse = entries.transposed.take(entries.row != entries.column)
    return Entries.joined([entries, reverse], weighted=True)


def check_directions(source: PairSource, *, symmetric: bool) -> None:
    """Check that pairs stand for both directions if and only if the adjacency is symmetric.

    Raises:
        InputError: they do not match.
    """
    if source.symmetric != symmetric:
        kinds = {True: "undirected", False: "directed"}
        raise InputError(f"the pairs are {kinds[source.symmetric]}, but the graph of the shards is {kinds[symmetric]}")


def routed(
    comm: Communicator, entries: Entries, order: NDArray[np.int64], counts: NDArray[np.int64], place: Place
) -> Entries:
    """Send entries to the ranks that need them; returns the received entries. Collective.

    Args:
        order: positions of the entries to send, by receiver.
        counts: (size,) int64 number of entries for each rank.
    """
    # One message for each receiver: weights travel as their bits.
    columns = [each if each.dtype == np.int64 else each.view(np.int64) for each in entries if each is not None]
    packed = np.stack([each[order] for each in columns], 1)
    found = BlockExchange(comm, counts, place, Kind.SETUP).forth(packed)
    row, column, number, *weight = (np.ascontiguousarray(each) for each in found.T)
    return Entries(row, column, number, weight[0].view(np.float64) if weight else None)


@dataclass(frozen=True)
class ExcludedEntries:
    """Some entries of a block, each once, ascending by row and column.

    Attributes:
        row, column: (k,) int32 or int64.
        weight: (k,) float64; None if all are 1.
        num_rows, num_columns: shape of the block.
    """

    row: NDArray[Any]
    column: NDArray[Any]
    weight: NDArray[np.float64] | None
    num_rows: int
    num_columns: int

    def row_sums(self) -> NDArray[np.float64]:
        """(num_rows,) float64 sum of the entries of each row."""
        return np.bincount(self.row, self.weight, self.num_rows).astype(np.float64, copy=False)

    def moved(self, which: NDArray[np.int64], row: NDArray[Any], column: NDArray[Any], block: CSR) -> ExcludedEntries:
        """Some of the entries with other row and column numbers, ascending, in another block."""
        weight = None if self.weight is None else self.weight[which]
        return ExcludedEntries(row, column, weight, block.num_rows, block.num_columns)

    def listed(self) -> SparseRows:
        """The matrix of the entries, in the form that products read."""
        return listed_entries(self.row, self.column, self.weight, self.num_rows, self.num_columns)

    def removed_from(self, block: CSR) -> CSR:
        """The pattern of a block without these entries."""
        return without_entries(block, self.row, self.column)


def covered_entries(
    matrix: CoveredMatrix, halo: ExcludedEntries, transpose: ExcludedEntries
) -> tuple[ExcludedEntries, ExcludedEntries]:
    """Excluded entries of a product that sends sums in place of rows: in its halo, and in the matrix of sent rows.

    Args:
        halo: entries in the whole halo of the matrix.
        transpose: entries in the whole halo of its transpose.
    """
    column = matrix.column[halo.column]
    kept = np.flatnonzero(column >= 0)
    received = halo.moved(kept, halo.row[kept], column[kept], matrix.halo)
    row = matrix.row[transpose.column]
    kept = np.flatnonzero(row >= 0)
    # Entries of a row that is sent whole are not in the sums.
    kept = kept[entry_positions(matrix.send, row[kept], transpose.row[kept]) >= 0]
    kept = kept[np.lexsort((transpose.row[kept], row[kept]))]
    return received, transpose.moved(kept, row[kept], transpose.row[kept], matrix.send)


class StateTargets(Protocol):
    """Makes the entries of pairs in some blocks from their number alone."""

    def __call__(
        self, shares: Sequence[float], shapes: Sequence[tuple[int, int]], place: Place, *, weighted: bool
    ) -> Targets:
        """Take the memory of the entries.

        Args:
            shares: of all entries of the pairs, the share in each block.
            shapes: rows and columns of every block.
        """
        ...


class Targets(Protocol):
    """The entries of pairs in some blocks of a matrix, from which steps choose."""

    def __len__(self) -> int: ...

    def chosen(self, choose: Chosen) -> list[ExcludedEntries]:
        """For every block, the entries of the chosen pairs; an entry of several pairs appears once."""
        ...


class TargetEntries:
    """See :class:`Targets`; sorted, and held by the rank that multiplies with the blocks."""

    def __init__(self, entries: Entries, block: NDArray[np.integer[Any]], shapes: Sequence[tuple[int, int]]) -> None:
        """Sort the entries.

        Args:
            entries: entries with the block's row and column numbers.
            block: (k,) number of the block of each entry.
            shapes: rows and columns of every block.
        """
        self._shapes = shapes
        order = np.lexsort((entries.column, entries.row, block))
        widths = [max((shape[side] for shape in shapes), default=0) for side in (0, 1)]
        self._row, self._column = (
            each[order].astype(index_dtype(width), copy=False) for each, width in zip(entries[:2], widths, strict=True)
        )
        # Both directions of an edge are often here: a choice is called once for both.
        self._number, of_number = _distinct(entries.number)
        self._of_number = of_number[order]
        del of_number
        self._weight = None if entries.weight is None else entries.weight[order]
        # In one dtype, because another dtype would make a copy of the longer array.
        self._offset = np.searchsorted(block[order], np.arange(len(shapes) + 1).astype(block.dtype))
        del order
        # The steps of the entries' pairs in the last epoch, and the function that computed them.
        self._step: NDArray[Any] = np.empty(0, np.uint8)
        self._step_of: StepOf | None = None
        # Not searched again in every step, because pairs seldom occur twice.
        self._repeats = self._has_repeats()

    def __len__(self) -> int:
        return len(self._row)

    def chosen(self, choose: Chosen) -> list[ExcludedEntries]:
        kept = self._kept(choose)
        if self._repeats:
            kept = kept[~self._is_repeated(kept)]
        row, column = self._row[kept], self._column[kept]
        weight = None if self._weight is None else self._weight[kept]
        bounds = np.searchsorted(kept, self._offset).tolist()
        return [
            ExcludedEntries(row[start:stop], column[start:stop], None if weight is None else weight[start:stop], *shape)
            for start, stop, shape in zip(bounds[:-1], bounds[1:], self._shapes, strict=True)
        ]

    def _kept(self, choose: Chosen) -> NDArray[np.int64]:
        """Positions of the entries whose pairs are chosen."""
        if not isinstance(choose, PairsOfStep):
            return np.flatnonzero(self._asked(choose, np.dtype(bool)))
        if self._step_of is not choose.step_of:
            self._step = self._asked(choose.step_of, step_dtype(choose.num_steps))
            self._step_of = choose.step_of
        return np.flatnonzero(self._step == choose.step)

    def _asked(self, ask: Callable[[NDArray[np.int64]], NDArray[Any]], dtype: np.dtype[Any]) -> NDArray[Any]:
        """(num_entries,) value of the pair of each entry."""
        # In pieces, so that intermediate values stay in the caches.
        answer = np.empty(len(self._number), dtype)
        for start in range(0, len(self._number), _CHOSEN_AT_ONCE):
            numbers = self._number[start : start + _CHOSEN_AT_ONCE]
            answer[start : start + len(numbers)] = ask(numbers)
        found: NDArray[Any] = answer[self._of_number]
        return found

    def _has_repeats(self) -> bool:
        """Whether several pairs have the same entry; in less memory than :meth:`_is_repeated` of all entries."""
        same = self._row[1:] == self._row[:-1]
        same &= self._column[1:] == self._column[:-1]
        first = self._offset[:-1]
        same[first[(first > 0) & (first < len(self))] - 1] = False
        return bool(same.any())

    def _is_repeated(self, kept: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(len(kept),) bool, whether an entry equals the previous one."""
        found = np.zeros(len(kept), bool)
        row, column = self._row[kept], self._column[kept]
        found[1:] = (row[1:] == row[:-1]) & (column[1:] == column[:-1])
        # The first entry of a block is never the entry of the block before.
        first = np.searchsorted(kept, self._offset[:-1])
        found[first[first < len(kept)]] = False
        return found


def _distinct(numbers: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """(num_distinct,) int64 distinct numbers, ascending, and the position of each given number among them."""
    first, last = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, -1)
    width = last + 1 - first
    if width > _SPARSE * len(numbers):
        distinct, which = np.unique(numbers, return_inverse=True)
        return distinct.astype(np.int64, copy=False), which.astype(index_dtype(len(distinct)))
    # Without a sort, which takes several times the memory.
    occurs = np.zeros(width, bool)
    occurs[numbers - first] = True
    before = np.cumsum(occurs, dtype=index_dtype(width + 1))
    before -= 1
    return np.flatnonzero(occurs) + first, before[numbers - first]


def step_dtype(num_steps: int) -> np.dtype[Any]:
    """The smallest dtype that holds the number of any step."""
    return np.min_scalar_type(max(0, num_steps - 1))


def remaining_degree(degree: NDArray[np.float64], excluded: NDArray[np.float64]) -> NDArray[np.float64]:
    """(num_rows,) degrees minus the sums of excluded entries; exactly 0 for rows without other entries.

    Sums of float32 weights are exact in float64 unless they differ by nine orders of magnitude. Then the difference of
    a row without other entries may be rounding noise, whose inverse would be huge; it is set to 0.
    """
    rest = degree - excluded
    rest[np.abs(rest) <= np.abs(degree) * _NOISE] = 0
    return rest


#: Share of a degree below which a difference is noise.
_NOISE: Final = 2.0**-40
