"""Computes scores without gradients, in bounded memory: of given pairs, and of sources with all vertices.

Every rank has its own pairs or sources. A rank fetches the rows of its pairs; the rows of sources then go from rank
to rank, and each rank scores them with the vertices that it owns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.trainer.comm.exchange import broadcast_array
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.links.decoder import Decoder
from gnnloom.trainer.links.pair_rows import PairRows

#: Number of pairs whose rows are fetched at a time.
_PAIRS: Final = 1 << 16


@dataclass(frozen=True)
class Lists:
    """A list of vertices for each source, such as its known targets.

    Attributes:
        start, stop: (num_sources,) int64 positions at which each list begins and ends in ``vertex``; lists may overlap.
        vertex: (num_listed,) int64, in any order, possibly repeated.
    """

    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    vertex: NDArray[np.int64]

    @classmethod
    def of(cls, lists: Sequence[NDArray[np.int64]]) -> Lists:
        """Lists from one array each."""
        offset = np.cumsum([0, *map(len, lists)])
        return cls(offset[:-1], offset[1:], np.concatenate([np.empty(0, np.int64), *lists]))

    def moved(self, by: int) -> Lists:
        """The lists with an offset added to all vertices."""
        return Lists(self.start, self.stop, self.vertex + by) if by else self

    @property
    def offset(self) -> NDArray[np.int64]:
        """(num_sources + 1,) int64 where each list would begin if they followed each other, and the last one end."""
        return np.cumsum(np.append(0, self.stop - self.start))


@dataclass(frozen=True)
class BlockSizes:
    """Sizes of the blocks in memory.

    Attributes:
        sources: number of sources that a rank sends to all others.
        listed: number of vertices in their lists; a single list may be longer.
        targets: number of a rank's vertices with which they are scored.
    """

    sources: int = 256
    listed: int = 1 << 18
    targets: int = 1 << 13

    def cut(self, offset: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Ranges of sources, from the offsets of their lists."""
        ranges, start, num_sources = [], 0, len(offset) - 1
        while start < num_sources:
            longest = int(np.searchsorted(offset, offset[start] + self.listed, "right")) - 1
            ranges.append((start, min(max(longest, start + 1), start + self.sources, num_sources)))
            start = ranges[-1][1]
        return ranges


@dataclass(frozen=True)
class SourceBlock:
    """Some sources of one rank, in every rank's view.

    Attributes:
        rank: the rank that has them.
        span: range of its sources.
        rows: (num_sources, dim).
        listed: (2, num_mine) int64: numbers of sources in the block, and of this rank's rows, that their lists contain.
    """

    rank: int
    span: tuple[int, int]
    rows: Tensor
    listed: NDArray[np.int64]


class AllTargets:
    """Scores of sources with all vertices that may be targets, block by block."""

    def __init__(
        self,
        pair_rows: PairRows,
        rows: Tensor,
        decoder: Decoder,
        sizes: BlockSizes | None = None,
        *,
        first_target: int = 0,
    ) -> None:
        """Communicates nothing.

        Args:
            rows: (num_mine, dim) of ``pair_rows``.
            first_target: vertices from this one on may be targets; otherwise rows of vertices are in ascending order.
        """
        self.pair_rows, self.rows, self.decoder = pair_rows, rows.detach(), decoder
        self.sizes = sizes or BlockSizes()
        #: This rank's first row of a vertex that may be a target.
        self.first = int(np.searchsorted(pair_rows.vertex, first_target)) if first_target else 0
        self.comm, self.place = pair_rows.layout.grid.comm, pair_rows.layout.place

    def blocks(self, sources: NDArray[np.int64], lists: Lists, *others: NDArray[np.int64]) -> Iterator[SourceBlock]:
        """All sources of all ranks, in the same order on every rank. Collective, also between two blocks.

        Args:
            sources: (num_sources,) int64 sources of this rank; the number may differ between ranks.
            lists: a list for each source; the source itself is always on its list.
            others: (num_sources,) int64 one more vertex for each list.
        """
        ranges = self.sizes.cut(lists.offset)
        counts = self.comm.gather_numbers([len(ranges)])[:, 0].astype(np.int64).tolist()
        for turn in self.place.steps(range(max(counts))):
            start, stop = ranges[turn] if turn < len(ranges) else (0, 0)
            # All ranks fetch at the same time; each then holds the rows of one of its blocks.
            (mine,) = self.pair_rows.ends(self.rows, sources[start:stop])
            for rank, count in enumerate(counts):
                if turn < count:
                    sends = rank == self.comm.rank
                    listed = _numbered(lists, start, stop, (sources, *others)) if sends else np.empty((2, 0), np.int64)
                    yield self._sent(rank, (start, stop), mine, listed)

    def _sent(self, rank: int, span: tuple[int, int], rows: Tensor, listed: NDArray[np.int64]) -> SourceBlock:
        """Send a block of one rank to all others. Collective."""
        header = np.array([*span, listed.shape[1]])
        start, stop, num_listed = broadcast_array(self.comm, header, rank, self.place, Kind.METRICS).tolist()
        if rank != self.comm.rank:
            rows = self.place.empty((stop - start, self.pair_rows.dim), self.rows.dtype)
            listed = np.empty((2, num_listed), np.int64)
        self.comm.broadcast(rows, rank, Kind.METRICS)
        listed = broadcast_array(self.comm, listed, rank, self.place, Kind.METRICS)
        mine = listed[:, self.pair_rows.owner(listed[1]) == self.comm.rank]
        local = self.pair_rows.local(mine[1])
        order = np.argsort(local, kind="stable")
        return SourceBlock(rank, (start, stop), rows, np.stack([mine[0], local])[:, order])

    def scores(self, block: SourceBlock, nan: float) -> Iterator[tuple[int, Tensor]]:
        """Scores of a block's sources with this rank's vertices; those in a source's list are NaN.

        Communicates nothing.

        Args:
            nan: replacement for scores that are not a number.

        Yields:
            The number of the first row, and (num_sources, num_targets) scores, which the caller may overwrite.
        """
        numbers, local = block.listed
        for start in self.place.steps(range(self.first, len(self.rows), self.sizes.targets)):
            targets = self.rows[start : start + self.sizes.targets]
            found = self.decoder.scores_of_block(block.rows, targets)
            found.nan_to_num_(nan=nan, posinf=torch.inf, neginf=-torch.inf)
            here = slice(*np.searchsorted(local, [start, start + len(targets)]))
            places = (self.place.from_numpy(each) for each in (numbers[here], local[here] - start))
            found[tuple(places)] = torch.nan
            yield start, found


def score_all(pair_rows: PairRows, rows: Tensor, decoder: Decoder, pairs: NDArray[np.int64]) -> Tensor:
    """Scores of this rank's pairs, without a gradient. Collective; ranks may have different numbers of pairs.

    Args:
        rows: (num_mine, dim) of ``pair_rows``.
        pairs: (num_pairs, 2) int64 sources and targets.

    Returns:
        (num_pairs,), with the bits of ``decoder.scores_of_block``.
    """
    comm, place, rows = pair_rows.layout.grid.comm, pair_rows.layout.place, rows.detach()
    found = place.empty((len(pairs),), rows.dtype)
    rounds = int(comm.gather_numbers([-(-len(pairs) // _PAIRS)]).max())
    for number in range(rounds):
        some = slice(number * _PAIRS, (number + 1) * _PAIRS)
        source, target = pair_rows.ends(rows, pairs[some, 0], pairs[some, 1])
        found[some] = decoder.scores_of_pairs(source, target)
    return found


def _numbered(lists: Lists, start: int, stop: int, others: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """(2, num_listed) the numbers of some sources, from 0, and the vertices on their lists and in other arrays."""
    first, numbers = lists.start[start:stop], np.arange(stop - start)
    lengths = lists.stop[start:stop] - first
    of_lists = np.repeat(numbers, lengths)
    # Positions of the vertices: positions of a list are consecutive.
    at = np.arange(len(of_lists)) + np.repeat(first - (np.cumsum(lengths) - lengths), lengths)
    vertices = [lists.vertex[at], *(each[start:stop] for each in others)]
    return np.stack([np.concatenate([of_lists, *[numbers] * len(others)]), np.concatenate(vertices)])
