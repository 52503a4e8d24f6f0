"""Batches that were drawn ahead of training, read from disk segment by segment."""

from __future__ import annotations

from collections.abc import Generator

from torch import Tensor

from gnnloom.storage.artifacts.samples import Samples, StoredBatch
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.format.row_buffers import RowBuffers
from gnnloom.storage.matrix.layered import empty_batch
from gnnloom.storage.sampling.ahead import prepare_ahead
from gnnloom.trainer.data.batches import Drawn
from gnnloom.trainer.data.vertex_data import normalize_feature
from gnnloom.trainer.place.arrays import array_dtype
from gnnloom.trainer.place.place import Place


class StoredBatches:
    """See :class:`gnnloom.trainer.data.batches.Batches`. Nothing is asked of other ranks.

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
        return Drawn(stored.batch, label, normalize_feature(feature, self._feature_norm))

    def nothing(self) -> Drawn:
        feature = self._place.lasting((0, self._samples.num_features), self._place.sum_dtype)
        return Drawn(empty_batch(self._num_layers), self._no_label, feature)

    def inputs(self, drawn: Drawn) -> Tensor:
        return drawn.feature
