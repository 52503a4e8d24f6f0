"""Batches that were drawn and packed before, which are read segment after segment."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from numpy.typing import NDArray

from gnnloom.storage.artifacts.samples import Samples, StoredBatch, segment_path
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.disk.row_buffers import RowBuffers
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import as_trained
from gnnloom.storage.sampling.ahead import prepare_ahead
from gnnloom.trainer.loader.choices import STORED
from gnnloom.trainer.loader.hops import batch_hops, edge_weight
from gnnloom.trainer.loader.streams import Fields, Source, Stream, hop_fields
from gnnloom.trainer.loader.vertices import FEATURE_DTYPES, give_back_unused, scaled_features


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredSource(Source):
    """The batches of one rank of stored samples.

    Attributes:
        samples: their key.
        rank: of the ranks that they were drawn for.
    """

    samples: str
    rank: int

    def open(self) -> Stream:
        return _StoredStream(self, Dataset(self.dataset).samples(self.samples))


class _StoredStream(Stream):
    """See :class:`Stream`. An epoch after the stored ones has the batches of the first, and so on."""

    def __init__(self, source: StoredSource, samples: Samples) -> None:
        if samples.num_layers > 1 and not samples.draw_once and any(fanout >= 0 for fanout in samples.fanouts):
            raise InputError(
                f"{samples.artifact.path}: vertices draw neighbors anew in every layer, so one graph cannot serve all"
                " layers; draw samples with `gnnloom sample --draw-once`"
            )
        self._source, self._samples, self._buffers = source, samples, RowBuffers(source.kept)
        self.num_batches, self.batch_size = samples.num_batches[source.rank], samples.batch_size
        if not self.num_batches:
            raise InputError(f"{samples.artifact.path}: rank {source.rank} has no batches")

    @cached_property
    def _hot(self) -> NDArray[Any]:
        return self._samples.hot_feature(self._source.rank)

    @cached_property
    def is_last_whole(self) -> bool:
        """See :attr:`Stream.is_last_whole`."""
        samples, rank = self._samples, self._source.rank
        last = segment_path(rank, 0, samples.num_segments(rank) - 1)
        return bool(samples.artifact.array(f"{last}/layer_size").read()[-1, -1] == self.batch_size)

    def prepare(self, epoch: int, number: int) -> Fields:
        with closing(self.batches(epoch, [number], 0, 1)) as found:
            return next(found)

    def batches(self, epoch: int, numbers: Sequence[int], threads: int, pool: int) -> Generator[Fields, None, None]:  # noqa: ARG002 - segments have a size of their own
        """See :meth:`Stream.batches`; at most one thread reads ahead."""
        per_segment, wanted = self._samples.segment_batches, set(numbers)
        segments = sorted({number // per_segment for number in numbers})

        def read(segment: int) -> list[StoredBatch]:
            return list(self._segment(epoch, segment, wanted))[::-1]

        with closing(prepare_ahead(read, segments, min(threads, 1), 1)) as ready:
            for batches in ready:
                # The features of a batch are gone as soon as it is not in use any more.
                while batches:
                    yield self._fields(batches.pop())

    def _segment(self, epoch: int, segment: int, wanted: set[int]) -> Iterator[StoredBatch]:
        samples, rank = self._samples, self._source.rank
        first = segment * samples.segment_batches
        stored = samples.read_segment(rank, epoch % samples.num_epochs, segment, self._hot, buffers=self._buffers)
        for number, batch in enumerate(stored, first):
            if number in wanted:
                yield batch

    def _fields(self, stored: StoredBatch) -> Fields:
        source, batch = self._source, stored.batch
        hops, matrix = batch_hops(batch), batch.blocks[0]
        if source.normalization == STORED:
            weight = source.stored_weight(matrix)
        else:
            weight = edge_weight(batch, source.normalization, source.place)
        found: Fields = {**source.edges(matrix, weight, hops.edge_index), **hop_fields(hops)}
        give_back_unused(stored.feature, self._buffers)
        if source.vertices.features in FEATURE_DTYPES:
            found["x"] = scaled_features(stored.feature, source.vertices.feature_norm, source.place)
        if source.vertices.labels:
            found["y"] = torch.from_numpy(as_trained(self._samples.label_name(source.rank), stored.label))
        return found | {"batch_size": batch.num_seeds}
