"""Batches that are drawn while others are trained on; features come from the ranks that own them."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

import numpy as np
from torch import Tensor

from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.matrix.layered import LayeredBatch, empty_batch
from gnnloom.storage.sampling.ahead import prepare_ahead
from gnnloom.storage.sampling.hot_rows import hot_vertices
from gnnloom.storage.sampling.layered import layered_batch
from gnnloom.storage.sampling.neighbor import NeighborSampler
from gnnloom.trainer.data.batches import Drawn
from gnnloom.trainer.data.row_exchange import RowExchange


class DrawnBatches:
    """See :class:`gnnloom.trainer.data.batches.Batches`."""

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
        draw = partial(_draw, self._graph, self._sampler, epoch)
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


def _draw(graph: WholeGraph, sampler: NeighborSampler, epoch: int, number: int) -> LayeredBatch:
    return layered_batch(graph, sampler.sample(epoch, number))
