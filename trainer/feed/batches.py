"""Makes the batches of one rank, for a training mode or for the loop of a loader's user.

A maker draws a batch or reads it from disk, and passes it to a function of the caller, such as one that reads features,
in the thread that prepares the batch. Any process can make any batch of any epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import groupby
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.samples import ONLY_TYPE, FeaturesByType, StoredBatch, StoredSamples
from gnnloom.storage.disk.row_buffers import RowBuffers
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.matrix.layered import LayeredBatch
from gnnloom.storage.sampling.ahead import prepare_ahead
from gnnloom.storage.sampling.layers.seeds import Seeds, SeedsOfBatch
from gnnloom.storage.sampling.sampler import Normalization, Sample, SubgraphSampler, Weights
from gnnloom.trainer.feed.feature_view import FeatureView, give_back_unused
from gnnloom.trainer.feed.windows import in_windows

Made = TypeVar("Made")
#: Drawn sample of a graph, or of a graph with types.
Drawing = TypeVar("Drawing")
Drawing_co = TypeVar("Drawing_co", covariant=True)
#: The vertices and rows of a stored batch.
Structure = TypeVar("Structure")
#: A division of an epoch into batches.
Divided = TypeVar("Divided")


class LayeredSampler(Protocol[Drawing_co]):
    """Draws neighbors of the seeds of a batch, layer by layer; any number of threads may ask."""

    def excluded(self, without: Any) -> Any:
        """Positions of entries to draw without, from :attr:`SeedsOfBatch.without`."""
        ...

    def sample_of(self, seeds: Any, epoch: int, batch: int, excluded: Any = None) -> Drawing_co:
        """Draw neighbors of the seeds of a batch, as if the graph lacked some entries.

        Args:
            seeds: see :attr:`SeedsOfBatch.vertices`.
        """
        ...


@dataclass(frozen=True)
class Batch:
    """A layered batch, ready for a training step.

    Attributes:
        rows: its vertices and blocks.
        examples: (num_seeds, ...) labels of the seeds, as in :class:`~gnnloom.trainer.data.vertex_data.Labels`; or the
            pairs whose ends are the seeds.
        feature: (num_vertices, num_features) input features of its vertices, scaled; without rows if the step asks
            for them.
    """

    rows: LayeredBatch
    examples: Any
    feature: Tensor


@dataclass(frozen=True)
class Drawn(Generic[Drawing]):
    """A drawn batch, before its features are read.

    Attributes:
        number: of the batch, among the batches of all epochs.
        excluded: (num_excluded,) int64 positions of entries of the graph that neighbors were drawn without, ascending,
            or such positions by relation; None for no entry.
        pairs: the pairs whose ends are the seeds; None for a batch of vertices.
        weights: weights of the losses and nonzeros of a subgraph; None if all are 1.
        features: views of the features of its vertices, by type; empty for a subgraph.
    """

    number: int
    sample: Drawing
    excluded: Any = None
    pairs: Any = None
    weights: Weights | None = None
    features: Mapping[str, FeatureView] = field(default_factory=dict)

    @property
    def feature(self) -> FeatureView | None:
        """The view of a graph without types; None if its batches have no features."""
        return self.features.get(ONLY_TYPE)

    @property
    def vertices(self) -> Mapping[str, NDArray[np.int64]]:
        """The vertices of the sample by type."""
        found: Any = self.sample
        return found.vertices if isinstance(found.vertices, Mapping) else {ONLY_TYPE: found.vertices}


class Batches(ABC, Generic[Made]):
    """The batches of all epochs.

    Attributes:
        num_batches: batches per epoch.
        batch_size: examples of every batch but the last.
        num_examples: examples per epoch; 0 if batches are not cut from a list.
    """

    num_batches: int
    batch_size: int
    num_examples: int = 0

    @abstractmethod
    def prepare(self, epoch: int, number: int) -> Made:
        """Make a batch; several threads may do so at a time."""

    def begin(self) -> None:
        """Read the data that all batches share, before the first batch is made."""

    def of_epoch(self, epoch: int, numbers: Sequence[int], threads: int, pool: int) -> Generator[Made, None, None]:
        """Some batches of an epoch, in order; close the generator to end the threads.

        Args:
            numbers: of the batches, ascending.
            threads, pool: see :func:`gnnloom.storage.sampling.ahead.prepare_ahead`.
        """
        return prepare_ahead(lambda number: self.prepare(epoch, number), numbers, threads, pool)

    def of_all(self, numbers: Iterable[int], threads: int, pool: int) -> Generator[Made, None, None]:
        """Batches of several epochs, in order. Threads prepare the first ones of an epoch before the last one ends.

        Args:
            numbers: of the batches, among the batches of all epochs.
            threads, pool: see :meth:`of_epoch`.
        """
        return prepare_ahead(lambda number: self.prepare(*divmod(number, self.num_batches)), numbers, threads, pool)

    @property
    def is_last_whole(self) -> bool:
        """Whether the last batch of an epoch is as large as the other batches."""
        return self.num_examples % self.batch_size == 0


class NeighborBatches(Batches[Made], Generic[Drawing, Made]):
    """Batches of sampled neighbors of seeds.

    Memory: ``memory`` bytes at most, if features are read in windows; see :mod:`gnnloom.trainer.feed.windows`.
    """

    def __init__(
        self,
        sampler: LayeredSampler[Drawing],
        seeds: Seeds,
        make: Callable[[Drawn[Drawing]], Made],
        features: Mapping[str, FeatureView],
        memory: int = 0,
    ) -> None:
        """Communicates nothing.

        Args:
            make: makes the result of a batch; several threads may call it at a time.
            features: views that batches read, by type; ``ONLY_TYPE`` in a graph without types.
            memory: bytes for windows of batches; 0 to read the features of one batch at a time.
        """
        self._sampler, self._seeds, self._make = sampler, seeds, make
        self._features, self._memory = features, memory
        self.num_examples, self.batch_size = seeds.num_examples, seeds.batch_size
        self.num_batches = -(-self.num_examples // self.batch_size)

    def prepare(self, epoch: int, number: int) -> Made:
        return self._make(self._draw(epoch, number, self._seeds.begin(epoch)))

    def of_epoch(self, epoch: int, numbers: Sequence[int], threads: int, pool: int) -> Generator[Made, None, None]:
        """See :meth:`Batches.of_epoch`. Collective if the seeds of ranks depend on each other."""
        seeds, share = self._seeds.begin(epoch), self._memory // max(1, len(self._features))
        found = {name: view.windows(share) for name, view in self._features.items()}
        windows = {name: each for name, each in found.items() if each is not None}
        if not windows:
            return prepare_ahead(lambda number: self._make(self._draw(epoch, number, seeds)), numbers, threads, pool)
        drawn = prepare_ahead(
            lambda number: (number, self._draw(epoch, number, seeds).vertices), numbers, threads, pool
        )

        def make(number: int, views: Mapping[str, FeatureView]) -> Made:
            drawn = self._draw(epoch, number, seeds)
            return self._make(replace(drawn, features={**drawn.features, **views}))

        return in_windows(drawn, windows, make, threads, pool)

    def _draw(self, epoch: int, number: int, seeds: Callable[[int], SeedsOfBatch]) -> Drawn[Drawing]:
        asked = seeds(number)
        excluded = None if asked.without is None else self._sampler.excluded(asked.without)
        sample = self._sampler.sample_of(asked.vertices, epoch, number, excluded)
        of_all = epoch * self.num_batches + number
        return Drawn(of_all, sample, excluded, asked.pairs, features=self._features)


class SubgraphBatches(Batches[Made]):
    """Batches that are subgraphs of sampled vertices."""

    def __init__(
        self,
        sampler: SubgraphSampler,
        num_batches: int,
        weights: Normalization | None,
        make: Callable[[Drawn[Sample]], Made],
    ) -> None:
        """Communicates nothing.

        Args:
            num_batches: batches per epoch; 0 for the sampler's number.
            weights: frequencies of vertices and nonzeros in batches; None for no weights.
            make: makes the result of a batch; several threads may call it at a time.
        """
        self._sampler, self._weights, self._make = sampler, weights, make
        self.num_batches, self.batch_size = num_batches or sampler.num_batches, sampler.size

    def prepare(self, epoch: int, number: int) -> Made:
        of_all = epoch * self.num_batches + number
        # The sampler's own epochs: one that covers the vertices has a fixed number of batches in each.
        sample = self._sampler.sample(*divmod(of_all, self._sampler.num_batches))
        weights = None if self._weights is None else self._weights.weights(sample)
        return self._make(Drawn(of_all, sample, weights=weights))


class DividedBatches(Batches[Made], Generic[Divided, Made]):
    """Batches into which every epoch divides all vertices, or all training vertices, anew.

    Memory: the divisions of two epochs, as batches of the next epoch are prepared before the present one ends.
    """

    def __init__(
        self,
        num_examples: int,
        batch_size: int,
        divide: Callable[[int], Divided],
        make: Callable[[Divided, int, int], Made],
    ) -> None:
        """Communicates nothing.

        Args:
            divide: divides an epoch into batches.
            make: makes the result of a batch from the division, its number in the epoch, and its number among the
                batches of all epochs; several threads may call it at a time.
        """
        self.num_examples, self.batch_size, self._make = num_examples, batch_size, make
        self.num_batches = -(-num_examples // batch_size)
        self._lock, self._kept = Lock(), lru_cache(2)(divide)

    def prepare(self, epoch: int, number: int) -> Made:
        # Otherwise two threads would divide the same epoch.
        with self._lock:
            divided = self._kept(epoch)
        return self._make(divided, number, epoch * self.num_batches + number)


class StoredBatches(Batches[Made], Generic[Structure, Made]):
    """The batches of one rank of stored samples. After the stored epochs, the first one is read again, and so on.

    Memory: the features of frequent vertices, and two segments, since a thread reads one ahead.
    """

    def __init__(
        self,
        samples: StoredSamples[Structure],
        rank: int,
        make: Callable[[StoredBatch[Structure]], Made],
        *,
        kept: int | None = None,
        counter: ReadCounter | None = None,
    ) -> None:
        """Communicates nothing.

        Args:
            rank: number of a rank among the ranks that the samples were drawn for.
            make: makes the result of a batch, when the batch is requested.
            kept: unused arrays of features to keep for each type; None to keep all.
        """
        self._samples, self._rank, self._make, self._counter = samples, rank, make, counter
        self._kept = kept
        self.num_batches, self.batch_size = samples.num_batches_for(rank), samples.batch_size

    @cached_property
    def hot_features(self) -> FeaturesByType:
        """(num_hot, num_features) features of frequent vertices by type, read on first use."""
        return self._samples.hot_features(self._rank, self._counter)

    def begin(self) -> None:
        """See :meth:`Batches.begin`: every batch has frequent vertices."""
        _ = self.hot_features

    @cached_property
    def _buffers(self) -> dict[str, RowBuffers]:
        """Memory for the features of each type."""
        return {name: RowBuffers(self._kept) for name in self.hot_features}

    @cached_property
    def is_last_whole(self) -> bool:
        """See :attr:`Batches.is_last_whole`."""
        return self._samples.num_last_seeds(self._rank) == self.batch_size

    def prepare(self, epoch: int, number: int) -> Made:
        with closing(self.of_epoch(epoch, [number], 0, 1)) as found:
            return next(found)

    def of_epoch(self, epoch: int, numbers: Sequence[int], threads: int, pool: int) -> Generator[Made, None, None]:  # noqa: ARG002 - segments have a size of their own
        """See :meth:`Batches.of_epoch`; at most one thread reads ahead."""
        per_segment = self._samples.segment_batches
        # Consecutive batches of one segment are read together.
        segments = [
            (rank, segment, {number for _, number in places})
            for (rank, segment), places in groupby(
                (self._samples.place(self._rank, number) for number in numbers),
                lambda place: (place[0], place[1] // per_segment),
            )
        ]

        def read(at: int) -> list[StoredBatch[Structure]]:
            (rank, segment, wanted), samples, hot = segments[at], self._samples, self.hot_features
            stored = samples.read_segment(rank, epoch % samples.num_epochs, segment, hot, self._counter, self._buffers)
            return [each for number, each in enumerate(stored, segment * per_segment) if number in wanted][::-1]

        def made(stored: StoredBatch[Structure]) -> Made:
            for name, rows in stored.features.items():
                give_back_unused(rows, self._buffers[name])
            return self._make(stored)

        with closing(prepare_ahead(read, range(len(segments)), min(threads, 1), 1)) as ready:
            for batches in ready:
                # The features of a batch are freed as soon as the batch is no longer used.
                while batches:
                    yield made(batches.pop())
