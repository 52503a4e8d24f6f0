"""Batches that were drawn and packed before, which are read segment after segment."""

from __future__ import annotations

from dataclasses import dataclass

from gnnloom.storage.artifacts.samples import Samples, StoredBatch
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import as_trained
from gnnloom.trainer.data.vertex_data import as_features
from gnnloom.trainer.feed.batches import StoredBatches
from gnnloom.trainer.loader.hops import batch_hops
from gnnloom.trainer.loader.streams import Fields, GraphSource, Stream, as_tensors
from gnnloom.trainer.loader.vertices import FEATURE_DTYPES


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredSource(GraphSource):
    """The batches of one rank of stored samples.

    Attributes:
        samples: their key.
        rank: of the ranks that they were drawn for.
    """

    samples: str
    rank: int

    def open(self) -> Stream:
        """See :meth:`Source.open`. An epoch after the stored ones has the batches of the first, and so on."""
        samples = Dataset(self.dataset).samples(self.samples)
        if samples.num_layers > 1 and not samples.draw_once and any(fanout >= 0 for fanout in samples.fanouts):
            raise InputError(
                f"{samples.artifact.path}: vertices draw neighbors anew in every layer, so one graph cannot serve all"
                " layers; draw samples with `gnnloom sample --draw-once`"
            )
        if not samples.num_batches[self.rank]:
            raise InputError(f"{samples.artifact.path}: rank {self.rank} has no batches")
        return StoredBatches(samples, self.rank, lambda stored: self._fields(samples, stored), kept=self.kept)

    def _fields(self, samples: Samples, stored: StoredBatch) -> Fields:
        batch = stored.batch
        found = self.hop_fields(batch_hops(batch, self.place), batch.blocks[0], lambda: batch)
        if self.vertices.features in FEATURE_DTYPES:
            feature = as_features(stored.feature, self.vertices.feature_norm, self.place)
            found["x"] = feature.to(self.place.feature_dtype)
        if self.vertices.labels:
            found["y"] = as_trained(samples.label_name(self.rank), stored.label)
        return as_tensors(found | {"batch_size": batch.num_seeds}, self.place)
