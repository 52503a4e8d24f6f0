"""Draws negatives of pairs, from random streams that are keyed by the epoch and the number of the pair.

The draw for a pair depends only on the seed, the epoch and the pair's number, so any rank can make it, and the number
of ranks changes no draw. A negative replaces the target; the source stays. For pairs of a relation between two types,
targets are vertices of the target type, and a target may have the same number as the source.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.schema import LINK_SPLITS
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.permutation import GOLDEN, mix
from gnnloom.storage.matrix.random_numbers import below, stream_key
from gnnloom.storage.wording import counted
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.feed.pair_seeds import TRAIN, PairSet

#: Maximum number of times that a negative is drawn again because it is known to be true.
REDRAWS: Final = 16
#: From (m,) sources and (m,) targets, whether each pair is known to be true. Every rank makes the same number of calls.
IsKnown = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.bool_]]
#: From (m,) numbers of ends of training pairs, the vertices at these ends; see :class:`DegreeNegatives`.
ReadEnds = Callable[[NDArray[np.int64]], NDArray[np.int64]]


class NegativeSampler(ABC):
    """Draws negatives; see the module.

    Attributes:
        count: negatives for each pair.
    """

    name: ClassVar[str]

    def __init__(
        self, seed: int, count: int, num_vertices: int, num_sources: int | None = None, *, has_loops: bool = True
    ) -> None:
        """Draw from some vertices.

        Args:
            num_vertices: vertices that may be targets.
            num_sources: vertices that may be sources; None for the same vertices.
            has_loops: a pair of equal numbers is a loop, which must not be drawn as a negative.

        Raises:
            InputError: there are fewer than two targets, as every negative then is the source, or the target.
        """
        if num_vertices < 2:
            raise InputError(f"negatives in a graph of {counted(num_vertices, 'vertex')}: expected at least 2")
        self._seed, self.count, self._num_vertices, self._has_loops = seed, count, num_vertices, has_loops
        self._num_sources = num_vertices if num_sources is None else num_sources

    def draw(self, epoch: int, pairs: PairSet) -> NDArray[np.int64]:
        """(num_pairs, count) int64 targets that stand for negatives of the pairs."""
        owner, column = np.divmod(np.arange(len(pairs.number) * self.count), self.count)
        return self._first(epoch, pairs, owner, column).reshape(len(pairs.number), self.count)

    def sources(self, epoch: int, pairs: PairSet) -> NDArray[np.int64] | None:  # noqa: ARG002 - for subclasses
        """(num_pairs, count) int64 sources of the negatives; None for the sources of the pairs."""
        return None

    def compared(self, epoch: int, pairs: PairSet, is_known: IsKnown | None, comm: Communicator) -> PairSet:
        """Pairs with the negatives that a loss compares them with. Collective if ``is_known`` is given.

        Args:
            is_known: tells which pairs are true, so that they are drawn again as far as possible; None to accept every
                draw.
        """
        drawn = self.draw(epoch, pairs)
        found = replace(pairs, negative=drawn, drawn_source=self.sources(epoch, pairs), group=None)
        if is_known is not None:
            self.redraw(epoch, pairs, drawn, is_known, comm)
        return found

    def redraw(
        self, epoch: int, pairs: PairSet, negatives: NDArray[np.int64], is_known: IsKnown, comm: Communicator
    ) -> int:
        """Draw negatives again if they are known or equal the source; at most 16 times, then the last draw is kept.

        Every rank makes as many draws as the rank that needs most. Collective.

        Args:
            negatives: (num_pairs, count) of :meth:`draw`, changed in place.
            is_known: see :class:`gnnloom.storage.shards.known_pairs.KnownInTraining`.

        Returns:
            Number of negatives of this rank that are still known or equal to the source.
        """
        entry, sources = np.arange(negatives.size), self.sources(epoch, pairs)
        for attempt in range(REDRAWS + 1):
            owner, column = np.divmod(entry, self.count)
            source, drawn = pairs.source[owner], negatives.reshape(-1)[entry]
            # The pair itself counts as known even if it is not a training pair.
            is_own = drawn == pairs.target[owner]
            if sources is not None:
                source = sources.reshape(-1)[entry]
                is_own &= source == pairs.source[owner]
            refused = is_known(source, drawn) | (drawn == source) & self._has_loops | is_own
            entry, owner, column = entry[refused], owner[refused], column[refused]
            if attempt == REDRAWS or not comm.gather_numbers([len(entry)]).any():
                break
            again = self._again(epoch, pairs, owner, (attempt + 1) * self.count + column)
            np.put(negatives, entry, again)
        return len(entry)

    def _first(
        self, epoch: int, pairs: PairSet, owner: NDArray[np.int64], column: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Draw for some negatives for the first time; for arguments see :meth:`_again`."""
        return self._again(epoch, pairs, owner, column)

    @abstractmethod
    def _again(
        self, epoch: int, pairs: PairSet, owner: NDArray[np.int64], counter: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """(num_drawn,) draws for some pairs.

        Args:
            owner: (num_drawn,) position of the pair that each draw is for.
            counter: (num_drawn,) number of the draw in the pair's stream.
        """

    def _numbers(
        self, epoch: int, what: str, streams: NDArray[np.int64], counter: NDArray[np.int64], bound: int
    ) -> NDArray[np.int64]:
        """Uniform numbers below a bound, each from a stream of its own."""
        out = np.empty(len(streams), np.int64)
        _draw(stream_key(self._seed, f"negatives/{what}/{epoch}"), streams, counter, bound, out)
        return out

    def _targets(
        self, epoch: int, streams: NDArray[np.int64], counter: NDArray[np.int64], source: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Uniform vertices that may be targets, without the source if the pair would be a loop."""
        found = self._numbers(epoch, "pair", streams, counter, self._num_vertices - self._has_loops)
        # Numbers from the source's number on stand for the vertices after the source.
        return found + (found >= source) if self._has_loops else found


class UniformNegatives(NegativeSampler):
    """Any vertex except the source, each equally likely; the target and other true edges are possible."""

    name = "uniform"

    def _again(
        self, epoch: int, pairs: PairSet, owner: NDArray[np.int64], counter: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        return self._targets(epoch, pairs.number[owner], counter, pairs.source[owner])


class UniformPairs(NegativeSampler):
    """Pairs of any two vertices, each equally likely: negatives with sources of their own.

    Like the negatives of graph auto-encoders (Kipf, Welling, "Variational Graph Auto-Encoders", 2016) and of PyG's
    ``negative_sampling``.
    """

    name = "pairs"

    def sources(self, epoch: int, pairs: PairSet) -> NDArray[np.int64]:
        owner, column = np.divmod(np.arange(len(pairs.number) * self.count), self.count)
        return self._sources(epoch, pairs, owner, column).reshape(len(pairs.number), self.count)

    def _sources(
        self, epoch: int, pairs: PairSet, owner: NDArray[np.int64], column: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        return self._numbers(epoch, "source", pairs.number[owner], column, self._num_sources)

    def _again(
        self, epoch: int, pairs: PairSet, owner: NDArray[np.int64], counter: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        # The source stays where a target is drawn again.
        source = self._sources(epoch, pairs, owner, counter % self.count)
        return self._targets(epoch, pairs.number[owner], counter, source)


class JointNegatives(UniformNegatives):
    """Any vertex, each equally likely; pairs of a group share negatives, so a few rows serve many pairs.

    A shared negative may be the source or the target of some of the pairs. A negative that is drawn again belongs to
    one pair alone.

    Zheng et al., "DGL-KE: Training Knowledge Graph Embeddings at Scale" (SIGIR 2020), section 3.3.
    """

    name = "joint"

    def _first(
        self, epoch: int, pairs: PairSet, owner: NDArray[np.int64], column: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        group = np.zeros_like(owner) if pairs.group is None else pairs.group[owner]
        return self._numbers(epoch, "group", group, column, self._num_vertices)


class DegreeNegatives(NegativeSampler):
    """The target of a training pair, each pair equally likely; of an undirected graph, any end of a training pair.

    So vertices are drawn in proportion to the number of training pairs that lead to them. The source and true edges may
    be drawn.
    """

    name = "degree"

    def __init__(
        self,
        seed: int,
        count: int,
        num_vertices: int,
        num_pairs: int,
        read_ends: ReadEnds,
        *,
        symmetric: bool,
        has_loops: bool = True,
    ) -> None:
        """Draw from ends of training pairs.

        Args:
            num_pairs: number of training pairs.
            read_ends: the vertices at some ends. End i is the target of pair i; if ``symmetric``, end num_pairs + i is
                its source. Every rank makes the same number of calls.
            symmetric: a pair stands for both directions.

        Raises:
            InputError: there are no training pairs, or fewer than two vertices.
        """
        super().__init__(seed, count, num_vertices, has_loops=has_loops)
        if num_pairs < 1:
            raise InputError("negatives by degree: there are no training pairs to draw from")
        self._num_ends, self._read_ends = num_pairs * (2 if symmetric else 1), read_ends

    def _again(
        self, epoch: int, pairs: PairSet, owner: NDArray[np.int64], counter: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        return self._read_ends(self._numbers(epoch, "end", pairs.number[owner], counter, self._num_ends))


def make_negative_sampler(
    name: str, seed: int, count: int, links: Links, read_ends: Callable[[], ReadEnds]
) -> NegativeSampler:
    """Make the negative sampler of the given name, for training pairs of links.

    Args:
        count: negatives for each pair.
        read_ends: makes the function with which :class:`DegreeNegatives` reads ends; called only if needed.
    """
    num_targets, num_sources, has_loops = links.target_vertices, links.source_vertices, links.can_be_loops
    match name:
        case "degree":
            ends = links.num_pairs[TRAIN], read_ends()
            symmetric = links.symmetric
            return DegreeNegatives(seed, count, num_targets, *ends, symmetric=symmetric, has_loops=has_loops)
        case "pairs":
            return UniformPairs(seed, count, num_targets, num_sources, has_loops=has_loops)
        case "joint":
            return JointNegatives(seed, count, num_targets, has_loops=has_loops)
        case _:
            return UniformNegatives(seed, count, num_targets, has_loops=has_loops)


def evaluated_negatives(split: str, links: Links, pairs: PairSet) -> NDArray[np.int64]:
    """(num_pairs, 1) int64 negatives with which an evaluation compares pairs that have none of their own.

    One uniform vertex for each pair that is not a loop with its source, the same in every run.

    Args:
        split: split of the pairs, valid or test.
    """
    seed = LINK_SPLITS.index(split)
    return UniformNegatives(seed, 1, links.target_vertices, has_loops=links.can_be_loops).draw(-1, pairs)


@kernel
def _draw(
    key: np.uint64, streams: NDArray[np.int64], counter: NDArray[np.int64], bound: int, out: NDArray[np.int64]
) -> None:
    for k in range(len(streams)):
        stream = mix(key + (np.uint64(streams[k]) + np.uint64(1)) * GOLDEN)
        out[k] = below(stream, counter[k], bound)
