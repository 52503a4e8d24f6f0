"""Batches of pairs with sampled neighbors of their ends, as in training on links in mode ``neighbor``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.artifacts.mapped_links import map_links
from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.distinct import distinct
from gnnloom.storage.matrix.permutation import KeyedPermutation
from gnnloom.storage.matrix.random_numbers import stream_key
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.storage.sampling.layers.seeds import SeedsOfBatch
from gnnloom.storage.sampling.sampler import Sample
from gnnloom.storage.shards.known_pairs import KnownInTraining
from gnnloom.trainer.comm.unconnected import UnconnectedRank
from gnnloom.trainer.feed.batches import Drawn, NeighborBatches, without_pairs
from gnnloom.trainer.links.negatives import (
    NegativeSampler,
    Positives,
    evaluated_negatives,
    make_negative_sampler,
    own_negatives,
)
from gnnloom.trainer.loader.streams import Fields, NeighborSource, Stream
from gnnloom.trainer.loader.vertices import VertexFields

#: The split whose pairs are shuffled by the stream of training, and that negatives by degree are drawn from.
_TRAIN: Final = "train"


@dataclass(frozen=True, kw_only=True, eq=False)
class PairSource(NeighborSource):
    """Batches of the pairs of a split.

    Attributes:
        links: key of the links.
        negatives: drawn for each pair, if its split has no stored ones; 0 for pairs alone; None for those that an
            evaluation compares the pairs with.
        negative_sampler: see :data:`gnnloom.trainer.links.choices.NEGATIVE_SAMPLERS`.
        strict_negatives: draw again what is known in training.
        exclude_targets: draw neighbors as if the graph lacked the edges of the batch's pairs.
    """

    links: str
    negatives: int | None = 1
    negative_sampler: str = "uniform"
    strict_negatives: bool = False
    exclude_targets: bool = True

    def open(self) -> Stream:
        links = Dataset(self.dataset).links(self.links)
        if not links.num_pairs[self.split]:
            raise InputError(f"{links.artifact.path}: no pairs in split {self.split}")
        graph, vertices = self.map_graph(), self.vertex_fields()
        seeds = _PairSeeds(self, links, graph)
        return NeighborBatches(self.sampler(graph), seeds, partial(self._fields, graph, vertices))

    def _fields(self, graph: WholeGraph, vertices: VertexFields, drawn: Drawn[Sample]) -> Fields:
        pairs: _Pairs = drawn.pairs
        seeds = drawn.sample.vertices[: drawn.sample.num_seeds]
        return {
            **self.layered_fields(graph, vertices, drawn),
            "edge_label_index": torch.from_numpy(np.searchsorted(seeds, pairs.ends)),
            "edge_label": torch.from_numpy(pairs.label),
            "input_id": torch.from_numpy(pairs.number),
            "batch_size": len(pairs.number),
        }


@dataclass(frozen=True)
class _Pairs:
    """The pairs of a batch, and then what they are compared with.

    Attributes:
        number: (num_pairs,) int64 pairs.
        ends: (2, num_pairs + num_negatives) int64 sources and targets.
        label: (num_pairs + num_negatives,) 1 for pairs and 0 for negatives; without negatives, the values of pairs that
            have some.
    """

    number: NDArray[np.int64]
    ends: NDArray[np.int64]
    label: NDArray[Any]


class _PairSeeds:
    """See :class:`gnnloom.storage.sampling.layers.seeds.Seeds`."""

    def __init__(self, source: PairSource, links: Links, graph: WholeGraph) -> None:
        self._source, self._links = source, links
        mapped = map_links(links)
        self._pairs, self._train = mapped[source.split], mapped[_TRAIN].pair
        self.batch_size, self.num_examples = source.batch_size, links.num_pairs[source.split]
        is_given = self._pairs.negative is not None or self._pairs.pool is not None
        self._negatives = None if is_given or not source.negatives else self._make_negatives(source.negatives)
        self._is_known = KnownInTraining.of(graph, links) if self._negatives and source.strict_negatives else None

    def _make_negatives(self, count: int) -> NegativeSampler:
        source, links = self._source, self._links
        return make_negative_sampler(
            source.negative_sampler,
            source.seed,
            count,
            links.num_vertices,
            num_pairs=links.num_pairs[_TRAIN],
            read_ends=lambda: self._ends,
            symmetric=links.symmetric,
        )

    def _ends(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """See :class:`gnnloom.trainer.links.negatives.DegreeNegatives`."""
        side, pair = np.divmod(numbers, len(self._train))
        found: NDArray[np.int64] = self._train[pair, 1 - side]
        return found

    def begin(self, epoch: int) -> Callable[[int], SeedsOfBatch]:
        """See :class:`gnnloom.storage.sampling.layers.seeds.Seeds`."""
        return partial(self._of, epoch)

    def _of(self, epoch: int, number: int) -> SeedsOfBatch:
        pairs = self._numbers(epoch, number)
        source, target = self._pairs.pair[pairs].T.copy()
        compared = self._compared(epoch, number, Positives(pairs, source, target, np.full(len(pairs), number)))
        ends = np.concatenate([np.stack([source, target]), compared], axis=1)
        without = without_pairs(self._links, source, target) if self._source.exclude_targets else None
        return SeedsOfBatch(distinct(ends), _Pairs(pairs, ends, self._label(pairs, ends.shape[1])), without)

    def _numbers(self, epoch: int, number: int) -> NDArray[np.int64]:
        """(num_pairs,) int64 pairs of a batch."""
        first = number * self.batch_size
        places = np.arange(first, min(first + self.batch_size, self.num_examples))
        if not self._source.shuffle:
            return places
        key = stream_key(self._source.seed, f"pairs/{epoch}")
        return KeyedPermutation(self.num_examples, int(key)).inverse(places)

    def _compared(self, epoch: int, number: int, pairs: Positives) -> NDArray[np.int64]:
        """(2, num_negatives) int64 ends of the negatives of a batch: of each pair together, or a share of the pool."""
        own, count, sources = self._pairs, self._source.negatives, None
        num_batches = -(-self.num_examples // self.batch_size)
        if count == 0:
            return np.empty((2, 0), np.int64)
        if own.negative is not None:
            replaced = None if own.negative_source is None else own.negative_source[pairs.number]
            sources, negative = own_negatives(pairs.source, pairs.target, own.negative[pairs.number], replaced)
        elif own.pool is not None:
            return own.pool[slice(*split_range(len(own.pool), num_batches, number))].T
        elif self._negatives is None:
            negative = evaluated_negatives(self._source.split, self._links.num_vertices, pairs)[:, None]
        else:
            negative, sources = self._negatives.draw(epoch, pairs), self._negatives.sources(epoch, pairs)
            if self._is_known is not None:
                self._negatives.redraw(epoch, pairs, negative, self._is_known, UnconnectedRank(0, 1))
        if sources is None:
            sources = np.repeat(pairs.source[:, None], negative.shape[1], 1)
        return np.stack([sources.ravel(), negative.ravel()])

    def _label(self, pairs: NDArray[np.int64], count: int) -> NDArray[Any]:
        value = self._pairs.value
        if self._source.negatives == 0 and value is not None:
            return value[pairs]
        label = np.zeros(count, np.float32)
        label[: len(pairs)] = 1
        return label
