"""Batches of sampled neighbors as a rank trains on them: drawn during training, or before it and read from disk."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.samples import Samples, StoredBatch
from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.disk.row_buffers import RowBuffers
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.matrix.layered import LayeredBatch, empty_batch
from gnnloom.storage.sampling.ahead import prepare_ahead
from gnnloom.storage.sampling.hot_rows import hot_vertices
from gnnloom.storage.sampling.layered import layered_batch
from gnnloom.storage.sampling.neighbor import NeighborSampler
from gnnloom.trainer.data.batch_data import FeatureRows
from gnnloom.trainer.data.row_exchange import RowExchange
from gnnloom.trainer.data.vertex_data import normalize_feature
from gnnloom.trainer.place.arrays import array_dtype
from gnnloom.trainer.place.place import Place


@dataclass(frozen=True)
class Drawn:
    """One batch of a rank.

    Attributes:
        batch: its vertices and rows.
        label: (num_seeds, ...) labels of the seeds, as in :class:`~gnnloom.trainer.data.vertex_data.Labels`.
        feature: (num_vertices, num_features) input features of its vertices, normalized; without rows if they are
            fetched from other ranks.
    """

    batch: LayeredBatch
    label: Tensor
    feature: Tensor


class Batches(Protocol):
    """The batches of one rank.

    Attributes:
        num_batches: batches per epoch of this rank.
    """

    num_batches: int

    def begin(self, epoch: int) -> Generator[Drawn, None, None]:
        """The batches of an epoch, prepared ahead of their use; close it to end what prepares them.

        Communicates nothing.
        """
        ...

    def nothing(self) -> Drawn:
        """A batch of no vertices, for steps in which only other ranks have one."""
        ...

    def inputs(self, drawn: Drawn) -> Tensor:
        """(num_vertices, num_features) input features of a batch, normalized. Collective."""
        ...


class DrawnBatches:
    """See :class:`gnnloom.trainer.data.neighbor_batches.Batches`."""

    def __init__(
        self,
        graph: WholeGraph,
        sampler: NeighborSampler | None,
        num_layers: int,
        label: Tensor,
        exchange: RowExchange,
        threads: int,
        pool: int,
    ) -> None:
        """Communicates nothing.

        Args:
            sampler: draws this rank's batches; None if it has no training vertex.
            label: (num_own, ...) labels of this rank's rows.
            exchange: fetches the features of vertices from the ranks that own them.
            threads, pool: see :func:`gnnloom.storage.sampling.ahead.prepare_ahead`.
        """
        self._graph, self._sampler, self._exchange = graph, sampler, exchange
        self._label, self._threads, self._pool = label, threads, pool
        self.num_batches = sampler.num_batches if sampler else 0
        self._num_layers = num_layers

    def keep_frequent(self, memory: int, row_bytes: int) -> None:
        """Keep frequent rows of other ranks from now on. Collective.

        Args:
            memory: bytes for these rows.
        """
        found = np.empty(0, np.int64)
        if self._sampler is not None:
            found = hot_vertices(self._sampler, memory // max(1, row_bytes), self._exchange.is_remote)
        self._exchange.cache(found)

    def begin(self, epoch: int) -> Generator[Drawn, None, None]:
        if self._sampler is None:
            return
        sampler = self._sampler

        def draw(number: int) -> LayeredBatch:
            return layered_batch(self._graph, sampler.sample(epoch, number))

        batches = prepare_ahead(draw, range(self.num_batches), self._threads, self._pool)
        try:
            for batch in batches:
                rows = self._exchange.local(batch.seeds)
                yield Drawn(batch, self._label[rows], self._exchange.nothing)
        finally:
            batches.close()

    def nothing(self) -> Drawn:
        return Drawn(empty_batch(self._num_layers), self._label[:0], self._exchange.nothing)

    def inputs(self, drawn: Drawn) -> Tensor:
        # Owners have normalized their rows.
        return self._exchange.fetch(drawn.batch.vertices)


class MappedBatches:
    """See :class:`gnnloom.trainer.data.neighbor_batches.Batches`. Nothing is asked of other ranks.

    The threads that draw batches read their features from disk, too. Memory: as many batches with features as are
    prepared ahead.
    """

    def __init__(
        self,
        graph: WholeGraph,
        sampler: NeighborSampler | None,
        num_layers: int,
        own: Callable[[NDArray[np.int64]], NDArray[np.int64]],
        label: Tensor,
        features: FeatureRows,
        threads: int,
        pool: int,
    ) -> None:
        """Communicates nothing.

        Args:
            sampler: draws this rank's batches; None if it has no training vertex.
            own: finds the rows of this rank's vertices; see :class:`gnnloom.storage.matrix.local_numbers.LocalNumbers`.
            label: (num_own, ...) labels of this rank's rows.
            features: of all vertices, on disk.
            threads, pool: see :func:`gnnloom.storage.sampling.ahead.prepare_ahead`.
        """
        self._graph, self._sampler, self._own, self._label = graph, sampler, own, label
        self._features, self._threads, self._pool = features, threads, pool
        self.num_batches = sampler.num_batches if sampler else 0
        self._num_layers = num_layers

    def begin(self, epoch: int) -> Generator[Drawn, None, None]:
        if self._sampler is None:
            return
        sampler = self._sampler

        def draw(number: int) -> Drawn:
            batch = layered_batch(self._graph, sampler.sample(epoch, number))
            rows = self._features.place.from_numpy(self._own(batch.seeds))
            return Drawn(batch, self._label[rows], self._features(batch.vertices))

        batches = prepare_ahead(draw, range(self.num_batches), self._threads, self._pool)
        try:
            yield from batches
        finally:
            batches.close()

    def nothing(self) -> Drawn:
        return Drawn(empty_batch(self._num_layers), self._label[:0], self._features(np.empty(0, np.int64)))

    def inputs(self, drawn: Drawn) -> Tensor:
        return drawn.feature


class StoredBatches:
    """See :class:`gnnloom.trainer.data.neighbor_batches.Batches`. Nothing is asked of other ranks.

    Memory: the features of frequent vertices, and two segments, one of which a thread reads ahead.
    """

    def __init__(
        self,
        samples: Samples,
        rank: int,
        feature_norm: str,
        place: Place,
        no_label: Tensor,
        counter: ReadCounter,
        *,
        ahead: bool,
    ) -> None:
        """Read the features of frequent vertices. Communicates nothing.

        Args:
            feature_norm: ``row`` or ``none``; see :func:`gnnloom.trainer.data.vertex_data.normalize_feature`.
            no_label: (0, ...) labels of no vertex, of the dtype in which labels are wanted.
            ahead: read a segment while the one before is in use.
        """
        self._samples, self._rank, self._counter = samples, rank, counter
        self._feature_norm, self._place, self._no_label = feature_norm, place, no_label
        self._buffers = RowBuffers()
        self._hot = samples.hot_feature(rank, counter)
        self._threads = 1 if ahead else 0
        self.num_batches = samples.num_batches[rank]
        self._num_layers = samples.num_layers

    def begin(self, epoch: int) -> Generator[Drawn, None, None]:
        # A training of more epochs reads them again, from the first one on.
        stored = epoch % self._samples.num_epochs

        def read(number: int) -> list[StoredBatch]:
            segment = self._samples.read_segment(self._rank, stored, number, self._hot, self._counter, self._buffers)
            return list(segment)

        segments = prepare_ahead(read, range(self._samples.num_segments(self._rank)), self._threads, 1)
        try:
            for segment in segments:
                for batch in segment:
                    yield self._drawn(batch)
                    # The caller is done with this batch once it asks for the next.
                    self._buffers.give_back(batch.feature)
        finally:
            segments.close()

    def _drawn(self, stored: StoredBatch) -> Drawn:
        feature = self._place.from_numpy(stored.feature.astype(array_dtype(self._place.sum_dtype), copy=False))
        label = self._place.from_numpy(stored.label).to(self._no_label.dtype)
        return Drawn(stored.batch, label, normalize_feature(feature, self._feature_norm, self._place))

    def nothing(self) -> Drawn:
        feature = self._place.lasting((0, self._samples.num_features), self._place.sum_dtype)
        return Drawn(empty_batch(self._num_layers), self._no_label, feature)

    def inputs(self, drawn: Drawn) -> Tensor:
        return drawn.feature
