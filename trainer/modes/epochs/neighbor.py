"""``neighbor``: every rank trains on batches of its own training vertices, with sampled neighbors of each.

Hamilton, Ying, Leskovec, "Inductive Representation Learning on Large Graphs" (NeurIPS 2017), algorithm 2. The
gradient of a step is the gradient of the mean loss over the batches of all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.samples import ONLY_TYPE, Samples, StoredBatch
from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import SPLIT
from gnnloom.storage.matrix.layered import LayeredBatch, empty_batch
from gnnloom.storage.matrix.local_numbers import LocalNumbers
from gnnloom.storage.sampling.hot_rows import by_frequency
from gnnloom.storage.sampling.layered import layered_batch
from gnnloom.storage.sampling.layers.options import SAMPLER_OPTIONS
from gnnloom.storage.sampling.layers.seeds import VertexSeeds
from gnnloom.storage.sampling.neighbor import NeighborSampler
from gnnloom.storage.sampling.sampler import Sample
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.data.vertex_data import Labels, as_features
from gnnloom.trainer.feed.batches import Batch, Batches, Drawn, NeighborBatches, StoredBatches
from gnnloom.trainer.feed.feature_view import FeatureView, MappedFeatures, PackedFeatures
from gnnloom.trainer.feed.windows import pages_read
from gnnloom.trainer.modes.epochs.mode import Mode, ModeContext, form_gradients
from gnnloom.trainer.modes.epochs.model_inputs import BatchInputs
from gnnloom.trainer.modes.epochs.pair_batches import RankPairs
from gnnloom.trainer.modes.epochs.prepared import awaited, features_in_memory, take_steps
from gnnloom.trainer.modes.neighbor import fanouts
from gnnloom.trainer.operators.layered import LayeredOperator
from gnnloom.trainer.passes.evaluation import can_stream, streamed_outputs
from gnnloom.trainer.passes.layerwise import layerwise_scores, map_graph
from gnnloom.trainer.tasks.objectives.objective import StepLoss

#: Largest number of batches drawn to find out whether windows read fewer pages than separate batches.
_TRIED: Final = 64
#: Windows are used only if they read at most this share of the pages, because forming them costs processor time.
_WORTHWHILE: Final = 0.75


class NeighborMode(Mode):
    """Steps on batches; a rank with fewer batches than others takes part in the sums with an empty one."""

    def __init__(self, context: ModeContext) -> None:
        """Prepare the samplers and the cache of remote rows. Collective.

        Raises:
            CollectiveError: the model cannot run on blocks, the fan-outs do not fit it, or the graph is gone.
        """
        super().__init__(context)
        comm = context.comm
        self._fanouts = together(comm, lambda: _checked(context))
        self._operator = LayeredOperator(comm, len(self._fanouts), context.normalization, context.place)
        self._pairs = RankPairs.of(context)
        samples = context.given.samples
        self._batches, self._features = context.feed.open(
            self._drawn if samples is None else lambda: together(comm, lambda: self._stored(samples))
        )
        self._num_steps = int(comm.gather_numbers([self._batches.num_batches]).max())

    def _stored(self, samples: Samples) -> tuple[Batches[Batch], FeatureView]:
        """Stored batches, which have their features."""
        context, place = self.context, self.context.place

        def make(stored: StoredBatch[LayeredBatch]) -> Batch:
            label = place.from_numpy(stored.label).to(context.labels.label.dtype)
            return Batch(stored.batch, label, as_features(stored.feature, context.feature_norm, place))

        found = StoredBatches(samples, context.comm.rank, make, counter=context.counter)
        # Read before the first step, because every batch has frequent vertices.
        found.begin()
        return found, PackedFeatures(context.inputs.value[:0])

    def _drawn(self) -> tuple[Batches[Batch], FeatureView]:
        """Batches that are drawn during training. Collective."""
        context, comm = self.context, self.context.comm
        graph, owner = together(comm, lambda: map_graph(context.source))
        features = together(comm, lambda: self._view(graph, owner))
        own = LocalNumbers.of(context.operator.layout(0).vertex)
        drawn = {name: context.options[name] for name in SAMPLER_OPTIONS}
        sampler = NeighborSampler(graph, context.seed, self._fanouts, **drawn)
        seeds = self._seeds()
        in_windows = self._keep_rows(features, sampler, seeds)

        def make(drawn: Drawn[Sample]) -> Batch:
            rows = layered_batch(graph, drawn.sample, drawn.excluded)
            examples = drawn.pairs
            if examples is None:
                examples = context.labels.at(own(rows.seeds), context.place).label
            return Batch(rows, examples, drawn.features[ONLY_TYPE].ahead(rows.vertices))

        return NeighborBatches(sampler, self._pairs or seeds, make, {ONLY_TYPE: features}, in_windows), features

    def _keep_rows(self, features: FeatureView, sampler: NeighborSampler, seeds: VertexSeeds) -> int:
        """Keep frequent rows in memory; returns the number of bytes left for windows of batches. Collective."""
        memory: int = self.context.options["cache_memory"]
        most = features.num_kept(memory)
        frequent = np.empty(0, np.int64)
        if most:
            # From disk, a row that is not kept costs a page.
            frequent = by_frequency(sampler, seeds, features.is_far, most if features.row_bytes else 0)
        kept = np.sort(frequent[:most])
        # Frequent rows, and windows of rows that are not frequent, may save more than frequent rows alone.
        fewer = np.sort(frequent[: features.num_kept(memory // 2)])
        left = memory - features.kept_bytes(len(fewer))
        windows = features.windows(left)
        if windows is not None and seeds.num_batches:
            alone, in_window = pages_read(self._tried(sampler, seeds), kept, fewer, windows)
            if in_window < _WORTHWHILE * alone:
                features.keep(fewer)
                return left
        features.keep(kept)
        return 0

    def _tried(self, sampler: NeighborSampler, seeds: VertexSeeds) -> Iterator[NDArray[np.int64]]:
        """(num_vertices,) int64 vertices of the first batches, ascending, which are drawn as they are asked for."""
        for number in range(min(_TRIED, seeds.num_batches)):
            yield np.sort(sampler.sample_of(seeds.of(0, number), 0, number).vertices)

    def _view(self, graph: WholeGraph, owner: NDArray[np.int32] | None) -> FeatureView:
        """The features of any vertices. Communicates nothing."""
        context = self.context
        if isinstance(context.given, BatchInputs):
            vertices = context.dataset.vertices(context.shards.artifact.inputs["vertices"])
            return MappedFeatures.of(vertices, context.feature_norm, context.place, graph.arrays)
        return features_in_memory(context, owner)

    def _seeds(self) -> VertexSeeds:
        """This rank's training vertices, or the ends of its training pairs, which stand in for the batches of pairs."""
        context, pairs = self.context, self._pairs
        if pairs is not None:
            return VertexSeeds(pairs.ends, pairs.batch_size, context.seed)
        known = context.vertex_objective.known_rows(context.labels, ["train"], context.place)
        training = np.sort(context.operator.layout(0).vertex[known])
        return VertexSeeds(training, context.options["batch_size"], context.seed)

    def _nothing(self) -> Batch:
        """A batch without vertices, for steps in which only other ranks have a batch."""
        rows, pairs = empty_batch(len(self._fanouts)), self._pairs
        examples = self.context.labels.label[:0] if pairs is None else pairs.nothing
        return Batch(rows, examples, self._features.ahead(rows.vertices))

    def train_epoch(self, epoch: int, update: Callable[[], None]) -> float:
        numbers, options = range(self._batches.num_batches), self.context.options
        prepared = self._batches.of_epoch(epoch, numbers, options["sampler_threads"], options["pool"])
        model = self.context.model
        with closing(awaited(prepared, self.context.comm.traffic)) as batches:
            mean = take_steps(
                model, epoch, self._num_steps, lambda: self._step(next(batches, None) or self._nothing()), update
            )
        # The last batch is not needed while the batches of the next epoch are prepared.
        self._operator.load(empty_batch(len(self._fanouts)))
        return mean

    def scores(self) -> Tensor:
        """See :meth:`Mode.scores`; from disk if the features of the batches are on disk."""
        context, measured = self.context, self.context.measured
        if not isinstance(context.given, BatchInputs):
            return super().scores()
        # A model that takes edges has its own passes, also from disk.
        if not context.model.takes_edges:
            return context.feed.scores(self._from_disk)
        scores = super().scores()
        return scores if measured is None else scores[measured]

    def _from_disk(self) -> Tensor:
        """The scores of the measured rows, layer by layer. Collective."""
        context, measured = self.context, self.context.measured
        if not can_stream(context.model):
            scores = layerwise_scores(context.model, context.source)
            return scores if measured is None else scores[measured]
        known_seconds = None if self.evaluation is None else self.evaluation["seconds"]
        source = replace(context.source, known_seconds=known_seconds)
        found, report = streamed_outputs(context.model, source, scored=measured)
        self.evaluation = report.to_json()
        return found.scores

    def _step(self, batch: Batch) -> tuple[float, float]:
        """Form the gradients of a batch; returns this rank's contribution to the loss, and its terms. Collective."""
        self._operator.load(batch.rows)
        self.bytes_used += len(batch.rows.vertices) * self._features.row_bytes
        loss = self._loss(batch)
        if not loss.num_terms:
            return 0.0, 0.0
        given = self.context.model, self._features, batch.rows.vertices, batch.feature
        return form_gradients(*given, self._operator, loss, shrinks=True), loss.num_terms

    def _loss(self, batch: Batch) -> StepLoss:
        """The mean loss over the seeds, or pairs, of all ranks' batches. Collective."""
        if self._pairs is not None:
            return self._pairs.loss(batch.examples, batch.rows.seeds)
        context, operator = self.context, self._operator
        split = operator.grid.place.zeros((batch.rows.num_seeds,), torch.uint8).fill_(SPLIT["train"])
        layout = operator.layout(len(self._fanouts))
        return context.vertex_objective.loss(layout, Labels(batch.examples, split))


def _checked(context: ModeContext) -> tuple[int, ...]:
    """The fan-outs of all layers, beginning with the layer of the seeds.

    Raises:
        InputError: they do not fit the model, or the model cannot run on blocks.
    """
    model, samples = context.model, context.given.samples
    if not model.takes_blocks:
        raise InputError(
            f"mode neighbor: the layers of model {context.model_name} need the same rows before and after; use gcn,"
            " sage, gin or gat, or another mode"
        )
    if samples:
        return samples.fanouts
    return fanouts(context.options["fanout"], model.num_layers, on_edges=model.takes_edges)
