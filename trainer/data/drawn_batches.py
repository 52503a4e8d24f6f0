"""Batches that are drawn while others are trained on; features come from the ranks that own them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Final, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.matrix.layered import empty_batch
from gnnloom.storage.sampling.ahead import sample_ahead
from gnnloom.storage.sampling.hot_rows import hot_vertices
from gnnloom.storage.sampling.layered import layered_batch
from gnnloom.storage.sampling.neighbor import NeighborSampler
from gnnloom.storage.sampling.sampler import Sample
from gnnloom.trainer.data.batches import Drawn
from gnnloom.trainer.data.row_exchange import RowExchange

#: Batches that one thread has drawn, or is drawing, ahead of their use.
_AHEAD: Final = 2


class DrawnBatches:
    """See :class:`gnnloom.trainer.data.batches.Batches`."""

    def __init__(
        self,
        graph: WholeGraph,
        sampler: NeighborSampler | None,
        num_layers: int,
        own: NDArray[np.int64],
        label: Tensor,
        exchange: RowExchange,
        threads: int,
    ) -> None:
        """Communicates nothing.

        Args:
            sampler: draws this rank's batches; None if it has no training vertex.
            own: (num_own,) int64 this rank's vertices, ascending.
            label: (num_own, ...) their labels.
            threads: that draw ahead; 0 draws each batch when it is needed.
        """
        self._graph, self._sampler, self._exchange = graph, sampler, exchange
        self._own, self._label, self._threads = own, label, threads
        self.num_batches = sampler.num_batches if sampler else 0
        self.num_layers = num_layers

    def keep_frequent(self, memory: int, row_bytes: int) -> None:
        """Keep frequent rows of other ranks from now on. Collective.

        Args:
            memory: bytes for these rows.
        """
        found = np.empty(0, np.int64)
        if self._sampler is not None:
            found = hot_vertices(self._sampler, memory // max(1, row_bytes), self._exchange.is_remote)
        self._exchange.cache(found)

    def begin(self, epoch: int) -> Generator[Drawn]:
        if self._sampler is None:
            return
        places = ((epoch, batch) for batch in range(self.num_batches))
        samples = sample_ahead(self._sampler, places, self._threads, _AHEAD * max(1, self._threads))
        # Both kinds of iterators that it returns can be closed.
        with closing(cast("Generator[Sample]", samples)):
            for sample in samples:
                batch = layered_batch(self._graph, sample)
                rows = torch.from_numpy(np.searchsorted(self._own, batch.seeds))
                yield Drawn(batch, self._label[rows])

    def nothing(self) -> Drawn:
        return Drawn(empty_batch(self.num_layers), self._label[:0])

    def inputs(self, drawn: Drawn) -> Tensor:
        # Owners have normalized their rows.
        return self._exchange.fetch(drawn.batch.vertices)
