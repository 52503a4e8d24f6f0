"""``subgraph``: every rank trains on its own subgraphs; a step takes the mean over the subgraphs of all ranks.

Zeng et al., "Accurate, Efficient and Scalable Graph Embedding" (IPDPS 2019), algorithms 1 and 5; with normalization,
Zeng et al., "GraphSAINT" (ICLR 2020), algorithm 1.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.mapped_vertices import map_vertices
from gnnloom.storage.artifacts.whole_graph import map_whole_graph
from gnnloom.storage.samplers.kind import SUFFICIENT
from gnnloom.storage.sampling.normalization import CountedNormalization
from gnnloom.storage.sampling.sampler import Normalization, Sample, SubgraphSampler
from gnnloom.storage.sampling.subgraphs import normalization_of, subgraph_sampler
from gnnloom.storage.wording import counted
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.data.batch_data import subgraph_rows
from gnnloom.trainer.data.vertex_data import Labels
from gnnloom.trainer.feed.batches import Batches, Drawn, SubgraphBatches
from gnnloom.trainer.feed.feature_view import FeatureView, MappedFeatures
from gnnloom.trainer.modes.epochs.prepared import Prepared, PreparedMode, features_in_memory
from gnnloom.trainer.modes.options import AUTO, sampler_arguments
from gnnloom.trainer.operators.p2p import SampledRows
from gnnloom.trainer.passes.layerwise import map_graph

logger = logging.getLogger(__name__)


class SubgraphMode(PreparedMode):
    """Batch k of an epoch goes to rank k mod P; a step takes the mean over the training vertices of up to P batches."""

    #: Weights of losses and nonzeros; None if all are 1.
    _weights: Normalization | None = None

    def _open(self) -> tuple[Batches[Prepared], FeatureView]:
        """Map the graph and the vertex data, which all processes of a node share. Collective.

        Raises:
            CollectiveError: the dataset lacks the graph, the vertex data or the partition, or the sampler refuses its
                parameters.
        """
        return together(self.context.comm, self._mapped)

    def _mapped(self) -> tuple[Batches[Prepared], FeatureView]:
        context, options = self.context, self.context.options
        inputs, owner = context.shards.artifact.inputs, None
        if context.learned is None:
            self._graph = map_whole_graph(context.dataset.graph(inputs["graph"]))
        else:
            self._graph, owner = map_graph(context.source)
        vertices = context.dataset.vertices(inputs["vertices"])
        self._arrays = map_vertices(vertices)
        features: FeatureView = (
            MappedFeatures.of(vertices, context.feature_norm, context.place, self._graph.arrays)
            if context.learned is None
            else features_in_memory(context, owner)
        )
        sampler = subgraph_sampler(context.dataset, self._graph, context.seed, options, sampler_arguments(options))
        if options["presamples"]:
            self._weights = self._normalization(sampler)
        return SubgraphBatches(sampler, options["batches"], self._weights, self._make), features

    def _normalization(self, sampler: SubgraphSampler) -> Normalization:
        presamples = self.context.options["presamples"]
        counts = None if presamples == AUTO else presamples
        found = normalization_of(sampler, counts, symmetric=self.context.shards.symmetric)
        if isinstance(found, CountedNormalization) and found.mean_count < SUFFICIENT and self.context.comm.rank == 0:
            _warn_of_few(found, is_limit=presamples == AUTO)
        return found

    def _numbers(self) -> Iterator[int]:
        """The batches of this rank, in the order of training."""
        comm, num_batches = self.context.comm, self.batches.num_batches
        for epoch in self.context.epochs:
            yield from range(epoch * num_batches + comm.rank, (epoch + 1) * num_batches, comm.size)

    def _make(self, drawn: Drawn[Sample]) -> Prepared:
        context, weights, vertices = self.context, drawn.weights, drawn.sample.vertices
        rows = subgraph_rows(
            drawn.sample,
            self._graph,
            context.normalization,
            context.place,
            symmetric=context.shards.symmetric,
            entry_weight=None if weights is None else weights.entry,
        )
        # A subgraph is not spread over ranks.
        operator = SampledRows(self.alone, rows, multiplies=type(context.model).multiplies)
        loss = context.vertex_objective.loss(
            operator.layout(context.model.num_layers),
            self._labels(vertices),
            # The weighted sum estimates a mean over all vertices; the divisor makes it one over the training vertices.
            row_weights=None if weights is None else context.place.from_numpy(weights.loss * self._graph.num_vertices),
        )
        return Prepared(drawn.number, vertices, operator, self.features.ahead(vertices), loss)

    def _labels(self, vertices: NDArray[np.int64]) -> Labels:
        """Labels and split of some vertices, owned by any ranks."""
        context = self.context
        names = context.vertex_objective.task.array, "split"
        label, split = (np.take(self._arrays[name], vertices, axis=0) for name in names)
        found = Labels.of(label, split, context.place)
        return Labels(found.label.to(context.labels.label.dtype), found.split)

    def train_epoch(self, epoch: int, update: Callable[[], None]) -> float:  # noqa: ARG002 - batches come in order
        comm, total, num_terms, num_batches = self.context.comm, 0.0, 0.0, self.batches.num_batches
        for first in self.context.place.steps(range(0, num_batches, comm.size)):
            in_step = min(comm.size, num_batches - first)
            batch = next(self._ready) if comm.rank < in_step else None
            # With weights, a batch estimates the sum over all training vertices.
            terms = self._terms(batch) if self._weights is None else self.context.loss.num_terms * in_step
            # Subgraphs without training vertices have no gradient.
            if terms:
                total += self._train_batch(batch, terms)
                update()
                num_terms += terms
        return total / num_terms if num_terms else 0.0


def _warn_of_few(presamples: CountedNormalization, *, is_limit: bool) -> None:
    mean = presamples.mean_count
    found = f"presamples: {counted(presamples.samples, 'batch')} with a vertex {mean:.3g} times on average"
    if is_limit:
        advice = "; no more are drawn. Larger batches cover more, and the weights of samplers vertex, edge and cluster"
        advice += " need none"
    else:
        advice = f"; pass --presamples auto, or about {math.ceil(presamples.samples * SUFFICIENT / mean):,}"
    logger.warning("%s, and weights are biased below %d%s", found, SUFFICIENT, advice)
