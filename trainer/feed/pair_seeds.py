"""Pairs as the examples of batches, with their negatives and the entries of the graph that a batch leaves out.

A step on the whole graph, batches of a rank's training pairs and the loader's batches of all pairs of a split have the
same order, the same negatives for a pair, and the same exclusion.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.links import LinkedRelation, Links
from gnnloom.storage.artifacts.typed.typed_names import reverse_name
from gnnloom.storage.matrix.distinct import distinct
from gnnloom.storage.matrix.permutation import KeyedPermutation
from gnnloom.storage.matrix.random_numbers import stream_key
from gnnloom.storage.sampling.layers.seeds import SeedsOfBatch

#: The splits of pairs.
TRAIN: Final = "train"
VALID: Final = "valid"
TEST: Final = "test"


@dataclass(frozen=True)
class PairSet:
    """Some pairs.

    Attributes:
        number: (num_pairs,) int64 positions of the pairs in their split.
        source, target: (num_pairs,) int64 vertices.
        value: (num_pairs,) classes or numbers of the pairs; None if they have no values.
        negative: (num_pairs, num_negatives) int64 targets that stand for negatives of each pair, or (1, num_negatives)
            targets that stand for negatives of all pairs; None if there are none.
        negative_source: (num_pairs, num_replaced) int64 sources that stand for negatives of each pair; None if there
            are none.
        drawn_source: the sources of ``negative``, in its shape; None for the source of the pair.
        group: (num_pairs,) int64 steps or batches of the pairs, numbered over all ranks; pairs of one group may share
            negatives. None for a single group.
    """

    number: NDArray[np.int64]
    source: NDArray[np.int64]
    target: NDArray[np.int64]
    value: NDArray[Any] | None = None
    negative: NDArray[np.int64] | None = None
    negative_source: NDArray[np.int64] | None = None
    drawn_source: NDArray[np.int64] | None = None
    group: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.number)

    @property
    def ends(self) -> list[NDArray[np.int64]]:
        """The vertices whose vectors a loss needs: sources, targets, and negatives and their sources, if any."""
        return [self.source, self.target, *(each for each in (self.negative, self.drawn_source) if each is not None)]

    @property
    def vertices(self) -> NDArray[np.int64]:
        """(num_vertices,) int64 distinct vertices at all ends, ascending."""
        return distinct(np.concatenate([each.ravel() for each in self.ends]))

    @property
    def both_ends(self) -> NDArray[np.int64]:
        """(num_pairs, 2) int64 sources and targets."""
        return np.stack([self.source, self.target], 1)

    def vertices_of(self, relation: LinkedRelation) -> dict[str, NDArray[np.int64]]:
        """The distinct vertices at all ends of pairs of a relation, (num_vertices,) int64, ascending, by type."""
        if relation.source == relation.target:
            return {relation.source: self.vertices}
        ends = {relation.source: (self.source, self.drawn_source), relation.target: (self.target, self.negative)}
        return {
            name: distinct(np.concatenate([each.ravel() for each in arrays if each is not None]))
            for name, arrays in ends.items()
        }

    def listed(self) -> NDArray[np.int64]:
        """(2, num_pairs + num_compared) int64 sources and targets: first the pairs, then the negatives of each pair."""
        own = np.stack([self.source, self.target])
        if self.negative is None:
            return own
        source = self.drawn_source
        if source is None:
            source = np.repeat(self.source[:, None], self.negative.shape[1], 1)
        return np.concatenate([own, np.stack([source.ravel(), self.negative.ravel()])], axis=1)

    def take(self, which: NDArray[Any] | slice) -> PairSet:
        """Pairs at the given positions, or where a mask is True."""
        return self.changed(lambda array: array[which])

    def changed(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> PairSet:
        """The same pairs with a function applied to every array."""
        arrays: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        arrays = {name: None if array is None else change(array) for name, array in arrays.items()}
        return PairSet(**arrays)

    def moved(self, by: int) -> PairSet:
        """The same pairs with an offset added to all targets; see :attr:`Links.first_target`."""
        negative = None if self.negative is None else self.negative + by
        return replace(self, target=self.target + by, negative=negative) if by else self

    def with_both_ends(self) -> PairSet:
        """The pairs with stored negatives in a loss's order: negatives with other targets, then with other sources.

        Raises:
            ValueError: the pairs have no negatives of their own.
        """
        if self.negative is None:
            raise ValueError("the pairs have no negatives of their own")
        if self.negative_source is None:
            return self
        # Negatives that replace the source have sources of their own.
        source = np.repeat(self.source[:, None], self.negative.shape[1], 1)
        target = np.repeat(self.target[:, None], self.negative_source.shape[1], 1)
        return replace(
            self,
            negative=np.concatenate([self.negative, target], axis=1),
            negative_source=None,
            drawn_source=np.concatenate([source, self.negative_source], axis=1),
        )


def pair_order(seed: int, epoch: int, num_pairs: int) -> KeyedPermutation:
    """The order of the pairs of a split in an epoch, from numbers of pairs to positions; the same on all ranks."""
    return KeyedPermutation(num_pairs, int(stream_key(seed, f"pairs/{epoch}")))


class PairSeeds(ABC):
    """Pairs in batches; see :class:`gnnloom.storage.sampling.layers.seeds.Seeds`.

    Attributes:
        links: the links that the pairs are from.
        num_examples: pairs per epoch.
        batch_size: pairs of every batch except the last.
        excludes: neighbors are drawn as if the graph lacked the edges of a batch's pairs.
    """

    def __init__(self, links: Links, num_examples: int, batch_size: int, *, excludes: bool) -> None:
        self.links, self.num_examples, self.batch_size, self.excludes = links, num_examples, batch_size, excludes

    @property
    def num_batches(self) -> int:
        """Batches of an epoch."""
        return -(-self.num_examples // self.batch_size)

    @abstractmethod
    def pairs_of(self, epoch: int) -> Callable[[int], PairSet]:
        """The function from the number of a batch of an epoch to the batch's pairs and their negatives.

        Several threads may call the function. Collective if negatives of ranks depend on each other.
        """

    def begin(self, epoch: int) -> Callable[[int], SeedsOfBatch]:
        """See :meth:`gnnloom.storage.sampling.layers.seeds.Seeds.begin`. Collective if :meth:`pairs_of` is."""
        pairs_of = self.pairs_of(epoch)
        return lambda number: self.seeds_of(pairs_of(number))

    def seeds_of(self, pairs: PairSet) -> SeedsOfBatch:
        """The vertices at the ends of a batch's pairs, and the edges that the pairs stand for.

        All parallel edges of a pair are left out. In a graph with types, vertices are by type, and edges by relation.
        """
        ends = (pairs.target, pairs.source), (pairs.source, pairs.target)
        relation = self.links.relation
        # Rows and columns, in both directions if the links exclude both.
        is_both = self.links.symmetric or self.links.excludes_reverse
        rows, columns = (np.concatenate(each) for each in zip(*(ends if is_both else ends[:1]), strict=True))
        if relation is None:
            return SeedsOfBatch(pairs.vertices, pairs, (rows, columns) if self.excludes else None)
        # The derived reverse has the same edges.
        without = {relation.name: (rows, columns), reverse_name(relation.name): (columns, rows)}
        return SeedsOfBatch(pairs.vertices_of(relation), pairs, without if self.excludes else None)
