"""``neighbor``: every rank trains on batches of its own training vertices, with sampled neighbors of each.

Hamilton, Ying, Leskovec, "Inductive Representation Learning on Large Graphs" (NeurIPS 2017), algorithm 2. The
gradient of a step is that of the mean loss over the batches of all ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.mapped_vertices import map_vertices
from gnnloom.storage.artifacts.samples import Samples
from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.disk.mapped_rows import fits_in_pages
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import SPLIT
from gnnloom.storage.matrix.layered import empty_batch
from gnnloom.storage.matrix.local_numbers import LocalNumbers
from gnnloom.storage.sampling.hot_rows import hot_vertices
from gnnloom.storage.sampling.neighbor import NeighborSampler
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.data.batch_data import FeatureRows
from gnnloom.trainer.data.neighbor_batches import Batches, Drawn, DrawnBatches, MappedBatches, StoredBatches
from gnnloom.trainer.data.row_exchange import RowExchange
from gnnloom.trainer.data.vertex_data import Labels
from gnnloom.trainer.models.networks.model import Inputs
from gnnloom.trainer.modes.epochs.layerwise import layerwise_scores, map_graph
from gnnloom.trainer.modes.epochs.learned_rows import LearnedRows
from gnnloom.trainer.modes.epochs.mode import Mode, ModeContext, awaited, multiplying_by
from gnnloom.trainer.modes.epochs.pair_batches import DrawnPairs, PairBatches
from gnnloom.trainer.modes.neighbor import fanouts
from gnnloom.trainer.operators.layered import Layered
from gnnloom.trainer.place.arrays import as_array
from gnnloom.trainer.streaming.evaluation import can_stream, streamed_outputs
from gnnloom.trainer.tasks.objectives.objective import StepLoss
from gnnloom.trainer.tasks.objectives.pairs import PairObjective


class NeighborMode(Mode):
    """Steps on batches; a rank with fewer batches than others takes part in the sums with an empty one."""

    def __init__(self, context: ModeContext) -> None:
        """Prepare the samplers and the cache of remote rows. Collective.

        Raises:
            CollectiveError: the model cannot run on blocks, the fan-outs do not fit it, or the graph is gone.
        """
        super().__init__(context)
        comm = context.comm
        self._samples = context.samples
        self._fanouts = together(comm, lambda: _checked(context))
        self._learned: LearnedRows | None = None
        self._operator = Layered(comm, len(self._fanouts), context.normalization, context.place)
        self._batches = self._opened()
        self._num_steps = int(comm.gather_numbers([self._batches.num_batches]).max())

    def _opened(self) -> Batches:
        """The batches of this rank. Collective."""
        if self._samples is not None:
            return self._read(self._samples)
        return self._map() if self.context.reads_batches else self._draw()

    def _read(self, samples: Samples) -> Batches:
        """Batches that were drawn before. Collective."""
        context = self.context
        return together(
            context.comm,
            lambda: StoredBatches(
                samples,
                context.comm.rank,
                context.feature_norm,
                context.place,
                context.labels.label[:0],
                context.counter,
                ahead=context.options["sampler_threads"] > 0,
            ),
        )

    def _draw(self) -> Batches:
        """Batches that are drawn during training. Collective."""
        context = self.context
        graph, owner = together(context.comm, lambda: map_graph(context))
        exchange = self._exchange(owner)
        batches = self._draw_pairs(graph, exchange) or self._draw_seeds(graph, exchange)
        if self._learned is None:
            batches.keep_frequent(context.options["cache_memory"], exchange.row_bytes)
        return batches

    def _map(self) -> Batches:
        """Batches that are drawn during training, with features from disk. Collective."""
        context = self.context
        options = context.options
        graph, _ = together(context.comm, lambda: map_graph(context))
        sampler = self._sampler(graph)

        def make() -> MappedBatches:
            vertices = context.dataset.vertices(context.shards.artifact.inputs["vertices"])
            feature, place = map_vertices(vertices)["feature"], context.place
            rows = FeatureRows(feature, str(vertices.artifact.path / "feature"), context.feature_norm, place)
            if sampler is not None and not fits_in_pages(feature):
                most = options["cache_memory"] // max(1, feature[:1].nbytes)
                rows = rows.keeping(hot_vertices(sampler, most))
            own, label = LocalNumbers.of(context.operator.layout(0).vertex), context.labels.label
            threads, pool = options["sampler_threads"], options["pool"]
            return MappedBatches(graph, sampler, len(self._fanouts), own, label, rows, threads, pool)

        return together(context.comm, make)

    def _draw_pairs(self, graph: WholeGraph, exchange: RowExchange) -> PairBatches | None:
        """Batches of pairs, if the task is on pairs. Collective."""
        if not isinstance(self.context.objective, PairObjective):
            return None
        return PairBatches(self.context, self.context.objective, graph, exchange, self._fanouts)

    def _sampler(self, graph: WholeGraph) -> NeighborSampler | None:
        """What draws the batches of this rank's training vertices; None if it has none. Collective."""
        context = self.context
        options, vertex = context.options, context.operator.layout(0).vertex
        seeds = np.sort(vertex[as_array(context.vertex_objective.known(context.labels, "train"))])

        def make() -> NeighborSampler | None:
            if not len(seeds):
                return None
            size, again, once = (options[name] for name in ("batch_size", "replace", "draw_once"))
            return NeighborSampler(graph, context.seed, seeds, self._fanouts, size, replace=again, draw_once=once)

        return together(context.comm, make)

    def _draw_seeds(self, graph: WholeGraph, exchange: RowExchange) -> DrawnBatches:
        """Batches of training vertices. Collective."""
        context = self.context
        options = context.options
        return DrawnBatches(
            graph,
            self._sampler(graph),
            len(self._fanouts),
            context.labels.label,
            exchange,
            options["sampler_threads"],
            options["pool"],
        )

    def _exchange(self, owner: NDArray[np.int32] | None) -> RowExchange:
        """What fetches features of vertices. Communicates nothing."""
        context = self.context
        if context.learned is not None:
            self._learned = LearnedRows(context, context.learned, owner)
            return self._learned.exchange
        feature = context.model.as_features(context.inputs.value)
        own = LocalNumbers.of(context.operator.layout(0).vertex)
        return RowExchange(context.comm, own, feature, owner, context.place)

    def train_epoch(self, epoch: int, update: Callable[[], None]) -> float:
        total, terms = 0.0, 0.0
        drawn_batches = awaited(self._batches.begin(epoch), self.context.comm.traffic)
        blocks = multiplying_by(self._operator, self.context.model, shrinks=True)
        with blocks, closing(drawn_batches) as batches:
            for step in range(self._num_steps):
                drawn = next(batches, None) or self._batches.nothing()
                # Every step has dropout masks of its own.
                self.context.model.epoch = epoch * self._num_steps + step
                contribution, weight = self._step(drawn)
                if weight:
                    update()
                total += contribution * weight
                terms += weight
        # The last batch is not needed while those of the next epoch are prepared.
        self._operator.load(empty_batch(len(self._fanouts)))
        return total / terms if terms else 0.0

    def scores(self) -> Tensor:
        """See :meth:`Mode.scores`; from disk if the features of the batches come from there."""
        context = self.context
        if not context.reads_batches:
            return super().scores()
        measured = context.measured
        if not can_stream(context.model):
            scores = layerwise_scores(context)
            return scores if measured is None else scores[measured]
        known_seconds = None if self.evaluation is None else self.evaluation["seconds"]
        source = replace(context.source, known_seconds=known_seconds)
        found, report = streamed_outputs(context.model, source, scored=measured)
        self.evaluation = report.to_json()
        return found.scores

    def _step(self, drawn: Drawn) -> tuple[float, float]:
        """Form the gradients of a batch; returns this rank's contribution to the loss, and its terms. Collective."""
        model = self.context.model
        vertices, learned = drawn.batch.vertices, self._learned
        feature = self._batches.inputs(drawn) if learned is None else learned.fetch(vertices)
        self._operator.load(drawn.batch)
        model.zero_grad()
        loss = self._loss(drawn)
        if not loss.num_terms:
            return 0.0, 0.0
        contribution = loss(model(Inputs(feature)))
        contribution.backward()  # type: ignore[no-untyped-call]
        if learned is not None:
            learned.give_back(vertices, feature)
        return float(contribution.detach()), loss.num_terms

    def _loss(self, drawn: Drawn) -> StepLoss:
        """The mean loss over the seeds, or pairs, of all ranks' batches. Collective."""
        if isinstance(self._batches, PairBatches) and isinstance(drawn, DrawnPairs):
            return self._batches.loss(drawn)
        context, operator = self.context, self._operator
        split = operator.grid.place.zeros((drawn.batch.num_seeds,), torch.uint8).fill_(SPLIT["train"])
        layout = operator.layout(len(self._fanouts))
        return context.vertex_objective.loss(layout, Labels(drawn.label, split))


def _checked(context: ModeContext) -> tuple[int, ...]:
    """The fan-outs of all layers, from that of the seeds on.

    Raises:
        InputError: they do not fit the model, or the model cannot run on blocks.
    """
    model, samples = context.model, context.samples
    if not model.takes_blocks:
        raise InputError(
            f"mode neighbor: the layers of model {context.model_name} need the same rows before and after; use gcn,"
            " sage, gin or gat, or another mode"
        )
    if samples:
        return samples.fanouts
    return fanouts(context.options["fanout"], model.num_layers, on_edges=model.takes_edges)
