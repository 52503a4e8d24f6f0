"""Batches of a rank's training pairs: the neighbors of all ends are drawn, and none over the pairs of the batch."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.matrix.distinct import distinct
from gnnloom.storage.matrix.layered import empty_batch
from gnnloom.storage.sampling.ahead import prepare_ahead
from gnnloom.storage.sampling.hot_rows import hot_vertices
from gnnloom.storage.sampling.layered import excluded_entries, layered_batch
from gnnloom.storage.sampling.neighbor import NeighborSampler
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.data.neighbor_batches import Drawn
from gnnloom.trainer.data.row_exchange import RowExchange
from gnnloom.trainer.modes.epochs.mode import ModeContext
from gnnloom.trainer.tasks.objectives.pairs import TRAIN, PairObjective, PairSet, PairStepLoss, Step, of_pairs
from gnnloom.trainer.tasks.options import BATCH_PAIRS


@dataclass(frozen=True)
class DrawnPairs(Drawn):
    """One batch of pairs; its seeds are their ends.

    Attributes:
        pairs: with the negatives that they are compared with, if any.
    """

    pairs: PairSet


class PairBatches:
    """See :class:`gnnloom.trainer.data.neighbor_batches.Batches`."""

    def __init__(
        self,
        context: ModeContext,
        objective: PairObjective,
        graph: WholeGraph,
        exchange: RowExchange,
        fanouts: tuple[int, ...],
    ) -> None:
        """Prepare the sampler. Collective.

        Args:
            exchange: fetches the features of vertices from the ranks that own them.

        Raises:
            CollectiveError: the fan-outs are out of their range.
        """
        self._context, self._objective, self._graph, self._exchange = context, objective, graph, exchange
        self._fanouts, self._labels = fanouts, of_pairs(context.labels)
        self._pairs = self._labels.sets[TRAIN]
        self._none = self._pairs.take(slice(0))
        self._size = pairs_of_batch(objective)
        self.num_batches = -(-len(self._pairs) // self._size)
        self._sampler = together(context.comm, self._make_sampler)

    def _make_sampler(self) -> NeighborSampler | None:
        if not len(self._pairs):
            return None
        ends = distinct(np.concatenate([self._pairs.source, self._pairs.target]))
        again, once = (self._context.options[name] for name in ("replace", "draw_once"))
        seed = self._context.seed
        return NeighborSampler(self._graph, seed, ends, self._fanouts, self._size, replace=again, draw_once=once)

    def keep_frequent(self, memory: int, row_bytes: int) -> None:
        """Keep frequent rows of other ranks from now on. Collective.

        Args:
            memory: bytes for these rows.
        """
        found = np.empty(0, np.int64)
        if self._sampler is not None:
            found = hot_vertices(self._sampler, memory // max(1, row_bytes), self._exchange.is_remote)
        self._exchange.cache(found)

    def begin(self, epoch: int) -> Generator[DrawnPairs, None, None]:
        """The batches of an epoch, prepared ahead of their use; close it to end what prepares them. Collective."""
        pairs = pairs_of_epoch(self._context, self._objective, epoch)
        # A copy: an empty slice would be a view that keeps all pairs of the epoch in memory until the next one.
        self._none = pairs.take(np.empty(0, np.int64))
        return self._prepared(epoch, pairs)

    def _prepared(self, epoch: int, pairs: PairSet) -> Generator[DrawnPairs, None, None]:
        sampler, options = self._sampler, self._context.options
        if sampler is None:
            return

        def draw(number: int) -> DrawnPairs:
            batch = pairs.take(slice(number * self._size, (number + 1) * self._size))
            ends = distinct_ends(batch)
            excluded = self._excluded(batch)
            sample = sampler.sample_of(ends, epoch, number, excluded)
            drawn = layered_batch(self._graph, sample, excluded)
            return DrawnPairs(drawn, self._context.labels.label, self._exchange.nothing, batch)

        batches = prepare_ahead(draw, range(self.num_batches), options["sampler_threads"], options["pool"])
        try:
            yield from batches
        finally:
            batches.close()

    def _excluded(self, pairs: PairSet) -> NDArray[np.int64] | None:
        """Positions of the entries of some pairs in the graph's matrix."""
        if not self._objective.given.options["exclude_targets"]:
            return None
        row, column = pairs.target, pairs.source
        links = self._objective.pairs
        if links.symmetric or links.excludes_reverse:
            row, column = np.concatenate([row, column]), np.concatenate([column, row])
        return excluded_entries(self._graph, row, column)

    def nothing(self) -> DrawnPairs:
        """A batch of no pairs, for steps of an epoch in which only other ranks have one. Communicates nothing."""
        batch = empty_batch(len(self._fanouts))
        return DrawnPairs(batch, self._context.labels.label, self._exchange.nothing, self._none)

    def inputs(self, drawn: Drawn) -> Tensor:
        """(num_vertices, num_features) input features of a batch, normalized. Collective."""
        return self._exchange.fetch(drawn.batch.vertices)

    def loss(self, drawn: DrawnPairs) -> PairStepLoss:
        """The mean loss over the pairs of all ranks' batches. Collective."""
        count = int(self._context.comm.gather_numbers([len(drawn.pairs)]).sum())
        seeds = drawn.batch.seeds

        def numbered(rows: Tensor, *ends: NDArray[np.int64]) -> tuple[Tensor, list[NDArray[np.int64]]]:
            return rows, [np.searchsorted(seeds, each) for each in ends]

        return self._objective.step_loss(self._labels, drawn.pairs, Step(TRAIN, count), numbered)


def pairs_of_batch(objective: PairObjective) -> int:
    """Training pairs of a batch; the last one may have fewer."""
    return int(objective.given.options["link_batch"]) or BATCH_PAIRS


def pairs_of_epoch(context: ModeContext, objective: PairObjective, epoch: int) -> PairSet:
    """A rank's training pairs in the order of their batches, with what they are compared with. Collective."""
    labels, size = of_pairs(context.labels), pairs_of_batch(objective)
    pairs = labels.sets[TRAIN]
    pairs = pairs.take(np.argsort(objective.order(epoch).forward(pairs.number)))
    # Batches of all ranks have numbers of their own, for what the pairs of a batch share.
    group = np.arange(len(pairs)) // size * context.comm.size + context.comm.rank
    # For all batches at once, as ranks may have to ask each other, and not all have equally many.
    return objective.compared(labels, pairs, Step(TRAIN, len(pairs), epoch), group)


def distinct_ends(pairs: PairSet) -> NDArray[np.int64]:
    """(num_ends,) int64 the vertices whose vectors the loss of some pairs needs, ascending."""
    return distinct(np.concatenate([each.ravel() for each in pairs.ends]))
