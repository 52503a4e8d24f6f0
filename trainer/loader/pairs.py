"""Batches of pairs with sampled neighbors of their ends, as in training on links in mode ``neighbor``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.artifacts.mapped_links import MappedPairs, map_links
from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.storage.sampling.sampler import Sample
from gnnloom.storage.shards.known_pairs import KnownInTraining
from gnnloom.trainer.comm.unconnected import UnconnectedRank
from gnnloom.trainer.feed.batches import Drawn, NeighborBatches
from gnnloom.trainer.feed.negatives import evaluated_negatives, make_negative_sampler
from gnnloom.trainer.feed.pair_seeds import TRAIN, PairSeeds, PairSet, pair_order
from gnnloom.trainer.loader.streams import Fields, NeighborSource, SeededSource, Stream, as_tensors
from gnnloom.trainer.loader.vertices import VertexFields


@dataclass(frozen=True, kw_only=True, eq=False)
class PairsSource(SeededSource):
    """Source of batches of the pairs of a split.

    Attributes:
        links: key of the links.
        negatives: number of negatives to draw for each pair, if its split has no stored negatives; 0 for pairs alone;
            None for the negatives of an evaluation.
        negative_sampler: see :data:`gnnloom.trainer.links.choices.NEGATIVE_SAMPLERS`.
        strict_negatives: draw negatives again that are known in training.
        exclude_targets: draw neighbors as if the graph lacked the edges of the batch's pairs.
    """

    links: str
    negatives: int | None = 1
    negative_sampler: str = "uniform"
    strict_negatives: bool = False
    exclude_targets: bool = True

    def open_links(self) -> Links:
        """The links.

        Raises:
            InputError: the split has no pairs.
        """
        links = Dataset(self.dataset).links(self.links)
        if not links.num_pairs[self.split]:
            raise InputError(f"{links.artifact.path}: no pairs in split {self.split}")
        return links


def pair_fields(pairs: PairSet, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> Fields:
    """The fields of a batch's pairs and their negatives, under the names of PyG; arrays are not tensors yet.

    Args:
        sources, targets: (num_seeds,) int64 vertices of the batch that may be sources and targets, ascending.
    """
    ends = pairs.listed()
    label = pairs.value
    if label is None:
        label = np.zeros(ends.shape[1], np.float32)
        label[: len(pairs)] = 1
    index = [np.searchsorted(seeds, each) for seeds, each in zip((sources, targets), ends, strict=True)]
    found = {"edge_label_index": np.stack(index), "edge_label": label, "input_id": pairs.number}
    return {**found, "batch_size": len(pairs)}


@dataclass(frozen=True, kw_only=True, eq=False)
class PairSource(PairsSource, NeighborSource):
    """Batches of the pairs of a split of a graph without types."""

    def open(self) -> Stream:
        links, graph = self.open_links(), self.map_graph()
        vertices = self.vertex_fields(graph)
        seeds = SplitPairs(self, links, graph.matrix, map_links(links))
        make = partial(self._fields, graph, vertices)
        return NeighborBatches(self.sampler(graph), seeds, make, vertices.views, self.cache_memory)

    def _fields(self, graph: WholeGraph, vertices: VertexFields, drawn: Drawn[Sample]) -> Fields:
        seeds = drawn.sample.vertices[: drawn.sample.num_seeds]
        found = {**self.layered_fields(graph, vertices, drawn), **pair_fields(drawn.pairs, seeds, seeds)}
        return as_tensors(found, self.place)


class SplitPairs(PairSeeds):
    """All pairs of a split, which are read as batches need them."""

    def __init__(self, source: PairsSource, links: Links, matrix: CSR, mapped: Mapping[str, MappedPairs]) -> None:
        """Communicates nothing.

        Args:
            matrix: the message graph, or the relation of the pairs in it.
            mapped: the pairs of every split.
        """
        super().__init__(links, links.num_pairs[source.split], source.batch_size, excludes=source.exclude_targets)
        how = source.negative_sampler
        self._source, self._stored, self._train = source, mapped[source.split], mapped[TRAIN].pair
        is_given = self._stored.negative is not None or self._stored.pool is not None
        count = 0 if is_given else source.negatives
        self._sampler = make_negative_sampler(how, source.seed, count, links, lambda: self._ends) if count else None
        self._is_known = KnownInTraining.of(matrix, links) if self._sampler and source.strict_negatives else None

    def _ends(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """See :class:`gnnloom.trainer.feed.negatives.DegreeNegatives`."""
        side, pair = np.divmod(numbers, len(self._train))
        found: NDArray[np.int64] = self._train[pair, 1 - side]
        return found

    def pairs_of(self, epoch: int) -> Callable[[int], PairSet]:
        """See :meth:`PairSeeds.pairs_of`. Communicates nothing."""
        return partial(self._of, epoch)

    def _of(self, epoch: int, batch: int) -> PairSet:
        first, stored = batch * self.batch_size, self._stored
        number = np.arange(first, min(first + self.batch_size, self.num_examples))
        if self._source.shuffle:
            number = pair_order(self._source.seed, epoch, self.num_examples).inverse(number)
        self.links.check_ends(stored.pair[number])
        source, target = stored.pair[number].T.copy()
        pairs = PairSet(number, source, target, group=np.full(len(number), batch))
        if self._source.negatives == 0:
            return replace(pairs, value=None if stored.value is None else stored.value[number])
        if stored.negative is not None:
            replaced = None if stored.negative_source is None else stored.negative_source[number]
            return replace(pairs, negative=stored.negative[number], negative_source=replaced).with_both_ends()
        if stored.pool is not None:
            pool = stored.pool[slice(*split_range(len(stored.pool), self.num_batches, batch))]
            self.links.check_ends(pool)
            source, target = pool.T[:, None]
            return replace(pairs, negative=target, drawn_source=source)
        if self._sampler is None:
            return replace(pairs, negative=evaluated_negatives(self._source.split, self.links, pairs))
        return self._sampler.compared(epoch, pairs, self._is_known, UnconnectedRank(0, 1))
