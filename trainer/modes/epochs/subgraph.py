"""``subgraph``: every rank trains on subgraphs of its own; a step is the mean over those of all ranks.

Zeng et al., "Accurate, Efficient and Scalable Graph Embedding" (IPDPS 2019), algorithms 1 and 5; with normalization,
Zeng et al., "GraphSAINT" (ICLR 2020), algorithm 1.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.mapped_vertices import map_vertices
from gnnloom.storage.artifacts.whole_graph import WholeGraph, map_whole_graph
from gnnloom.storage.samplers.kind import SUFFICIENT
from gnnloom.storage.sampling.ahead import prepare_ahead
from gnnloom.storage.sampling.normalization import CountedNormalization
from gnnloom.storage.sampling.sampler import Normalization, Sample, SubgraphSampler, Weights
from gnnloom.storage.sampling.subgraphs import normalization_of, subgraph_sampler
from gnnloom.storage.wording import counted
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.batch_data import VertexTable, subgraph_rows
from gnnloom.trainer.modes.epochs.layerwise import map_graph
from gnnloom.trainer.modes.epochs.learned_rows import LearnedRows
from gnnloom.trainer.modes.epochs.mode import Mode, ModeContext, add_gradients, awaited
from gnnloom.trainer.modes.options import AUTO, sampler_arguments
from gnnloom.trainer.operators.p2p import SampledRows
from gnnloom.trainer.operators.whole_rows import AXIS
from gnnloom.trainer.tasks.objectives.masked_loss import MaskedLoss

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Subgraph:
    """A batch that is ready for training.

    Attributes:
        number: of the batch, among those of all ranks and epochs.
        vertices: (num_rows,) int64 global ids.
        feature: of the vertices; without rows if they are learned, and so fetched in the step.
        loss: over the training vertices of the batch.
    """

    number: int
    operator: SampledRows
    vertices: NDArray[np.int64]
    feature: Tensor
    loss: MaskedLoss


class SubgraphMode(Mode):
    """Batch k of an epoch goes to rank k mod P; a step takes the mean over the training vertices of up to P batches."""

    def __init__(self, context: ModeContext) -> None:
        """Map the graph and the vertex data, which all processes of a node share, and begin to draw. Collective.

        Raises:
            CollectiveError: the dataset lacks the graph, the vertex data or the partition, or the sampler refuses its
                parameters.
        """
        super().__init__(context)
        options = context.options
        self._learned: LearnedRows | None = None
        self._graph, self._table, self._sampler, self._balance = together(context.comm, self._open)
        # A grid of this rank alone: a subgraph is not spread over ranks.
        self._grid = ProcessGrid(context.operator.grid.group(()), {AXIS: 1}, context.place)
        self._batches = options["batches"] or self._sampler.num_batches
        ready = prepare_ahead(self._prepare, self._numbers(), options["sampler_threads"], options["pool"])
        self._ready = awaited(ready, context.comm.traffic)

    def _open(self) -> tuple[WholeGraph, VertexTable, SubgraphSampler, Normalization | None]:
        context, options = self.context, self.context.options
        inputs = context.shards.artifact.inputs
        if context.learned is None:
            graph = map_whole_graph(context.dataset.graph(inputs["graph"]))
        else:
            graph, owner = map_graph(context)
            self._learned = LearnedRows(context, context.learned, owner)
        vertices = map_vertices(context.dataset.vertices(inputs["vertices"]))
        label = context.vertex_objective.task.array, context.labels.label.dtype
        table = VertexTable(vertices, context.feature_norm, context.place, label)
        sampler = subgraph_sampler(context.dataset, graph, context.seed, options, sampler_arguments(options))
        return graph, table, sampler, self._normalization(sampler) if options["presamples"] else None

    def _normalization(self, sampler: SubgraphSampler) -> Normalization:
        presamples = self.context.options["presamples"]
        counts = None if presamples == AUTO else presamples
        found = normalization_of(sampler, counts, symmetric=self.context.shards.symmetric)
        if isinstance(found, CountedNormalization) and found.mean_count < SUFFICIENT and self.context.comm.rank == 0:
            _warn_of_few(found, is_limit=presamples == AUTO)
        return found

    def _numbers(self) -> Iterator[int]:
        """The batches of this rank, in the order of training."""
        comm = self.context.comm
        for epoch in self.context.epochs:
            yield from range(epoch * self._batches + comm.rank, (epoch + 1) * self._batches, comm.size)

    def _prepare(self, number: int) -> _Subgraph:
        """Draw a batch and gather its data; several threads do so at a time."""
        context = self.context
        # The sampler's own epochs: one that covers the vertices has a fixed number of batches in each.
        sample = self._sampler.sample(*divmod(number, self._sampler.num_batches))
        symmetric = context.shards.symmetric
        weights = None if self._balance is None else self._balance.weights(sample)
        entry_weight = None if weights is None else weights.entry
        rows = subgraph_rows(
            sample, self._graph, context.normalization, context.place, symmetric=symmetric, entry_weight=entry_weight
        )
        operator = SampledRows(self._grid, rows, multiplies=type(context.model).multiplies)
        loss = self._batch_loss(sample, operator, weights)
        feature = self._table.feature(sample.vertices) if self._learned is None else context.inputs.value.detach()[:0]
        return _Subgraph(number, operator, sample.vertices, feature, loss)

    def _batch_loss(self, sample: Sample, operator: SampledRows, weights: Weights | None) -> MaskedLoss:
        context = self.context
        return context.vertex_objective.loss(
            operator.layout(context.model.num_layers),
            self._table.labels(sample.vertices),
            # The weighted sum estimates a mean over all vertices; the divisor makes it one over the training vertices.
            row_weights=None if weights is None else context.place.from_numpy(weights.loss * self._graph.num_vertices),
        )

    def train_epoch(self, epoch: int, update: Callable[[], None]) -> float:  # noqa: ARG002 - batches come in order
        model, comm = self.context.model, self.context.comm
        total, num_terms = 0.0, 0.0
        for first in range(0, self._batches, comm.size):
            in_step = min(comm.size, self._batches - first)
            batch = next(self._ready) if comm.rank < in_step else None
            terms = self._terms(batch, in_step)
            # Subgraphs without training vertices have no gradient.
            if not terms:
                continue
            model.zero_grad()
            total += self._train_batch(batch, terms)
            update()
            num_terms += terms
        return total / num_terms if num_terms else 0.0

    def _train_batch(self, batch: _Subgraph | None, num_terms: float) -> float:
        """Form the gradients of this rank's batch, if it has one; returns the sum of its losses. Collective."""
        learned = self._learned
        if learned is None:
            return 0.0 if batch is None else self._add_gradients(batch, batch.feature, num_terms)
        # A rank without a batch still has rows that others need.
        vertices = np.empty(0, np.int64) if batch is None else batch.vertices
        feature = learned.fetch(vertices)
        total = 0.0 if batch is None else self._add_gradients(batch, feature, num_terms)
        learned.give_back(vertices, feature)
        return total

    def _add_gradients(self, batch: _Subgraph, feature: Tensor, num_terms: float) -> float:
        return add_gradients(self.context.model, batch.number, batch.operator, feature, batch.loss, num_terms)

    def _terms(self, batch: _Subgraph | None, in_step: int) -> float:
        """What the sum of the losses of a step is divided by, the same on every rank. Collective."""
        if self._balance is not None:
            return self.context.loss.num_terms * in_step
        terms = self.context.place.tensor([batch.loss.num_terms if batch else 0.0], torch.float64)
        self.context.comm.all_reduce(terms, Kind.LOSS)
        return float(terms)

    def close(self) -> None:
        self._ready.close()


def _warn_of_few(presamples: CountedNormalization, *, is_limit: bool) -> None:
    mean = presamples.mean_count
    found = f"presamples: {counted(presamples.samples, 'batch')} with a vertex {mean:.3g} times on average"
    if is_limit:
        advice = "; no more are drawn. Larger batches cover more, and the weights of samplers vertex, edge and cluster"
        advice += " need none"
    else:
        advice = f"; pass --presamples auto, or about {math.ceil(presamples.samples * SUFFICIENT / mean):,}"
    logger.warning("%s, and weights are biased below %d%s", found, SUFFICIENT, advice)
