"""Stored batches, drawn and packed earlier, which are read segment after segment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from gnnloom.storage.artifacts.samples import Samples, StoredBatch
from gnnloom.storage.artifacts.typed.typed_samples import HeteroBatch
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.storage.format.vertex_arrays import as_trained
from gnnloom.storage.matrix.layered import LayeredBatch
from gnnloom.trainer.data.vertex_data import as_features
from gnnloom.trainer.feed.batches import Batches, Made, StoredBatches
from gnnloom.trainer.loader.hops import hops_of
from gnnloom.trainer.loader.streams import Fields, GraphSource, Stream, as_tensors
from gnnloom.trainer.loader.typed import SourceOfTypes
from gnnloom.trainer.loader.vertices import FEATURE_DTYPES, VertexChoice


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

    def _fields(self, samples: Samples, stored: StoredBatch[LayeredBatch]) -> Fields:
        batch = stored.batch
        found = self.hop_fields(hops_of(batch, self.place), batch.blocks[0], lambda: batch)
        if self.vertices.features in FEATURE_DTYPES:
            feature = as_features(stored.feature, self.vertices.feature_norm, self.place)
            found["x"] = feature.to(self.place.feature_dtype)
        if self.vertices.labels:
            found["y"] = as_trained(samples.label_name(self.rank), stored.label)
        return as_tensors(found | {"batch_size": batch.num_seeds}, self.place)


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredTypedSource(SourceOfTypes):
    """The batches of one rank of stored samples of a graph with types; an epoch numbers the batches of all ranks.

    Only seeds have labels.

    Attributes:
        samples: their key.
        rank: of the ranks that they were drawn for.
        counter: counts the bytes that are read; None for no count.
    """

    samples: str
    rank: int
    counter: ReadCounter | None = None

    def open(self) -> Stream:
        """See :meth:`Source.open`. An epoch after the stored ones has the batches of the first, and so on."""
        samples = Dataset(self.dataset).typed_samples(self.samples)
        seeds, of_type = samples.seeds(), samples.of_type
        choice = self.vertices.get(of_type)
        label = samples.label_name(0) if choice is not None and choice.labels else None

        def made(stored: StoredBatch[HeteroBatch], found: dict[Any, Fields]) -> Fields:
            count = stored.batch.num_vertices[of_type][0]
            number = np.searchsorted(seeds, stored.batch.vertices[of_type][:count])
            found[of_type] |= {"batch_size": count, "input_id": number}
            if label is not None:
                found[of_type]["y"] = as_trained(label, stored.label)
            return self.joined(found)

        return self.stream(made)

    def stream(self, make: Callable[[StoredBatch[HeteroBatch], dict[Any, Fields]], Made]) -> Batches[Made]:
        """Open the samples from which batches are made; see :meth:`Source.open`.

        Args:
            make: makes a batch from the stored batch, and its fields by type and by relation.
        """
        samples = Dataset(self.dataset).typed_samples(self.samples)
        edge_types = {each.name: each.edge_type for each in samples.relations}
        views = self.views

        def features(name: str, choice: VertexChoice, stored: StoredBatch[HeteroBatch]) -> Tensor:
            where = f"{samples.artifact.path}: features of type {name}"
            return views.packed(stored.features[name], choice, where, stored.batch.vertices[name])

        def made(stored: StoredBatch[HeteroBatch]) -> Made:
            batch = stored.batch
            data = {
                name: {"x": features(name, choice, stored)}
                for name, choice in self.vertices.items()
                if choice.features in FEATURE_DTYPES and name in stored.features
            }
            return make(stored, views.read(self.hetero_fields(batch, edge_types, data)))

        return views.stored(samples, self.rank, made, self.kept, self.counter)
