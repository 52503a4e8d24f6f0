"""``minibatch``: all ranks train on the same batches of random vertices, each on the rows that it owns.

Demirci, Haldar, Ferhatosmanoglu, "Scalable Graph Convolutional Network Training on Distributed-Memory Systems"
(PVLDB 16(4), 2022), section 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock

import torch

from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.sampling.ahead import prepare_ahead
from gnnloom.storage.shards.row_shards import RowShard, ShardMatrix
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.batch_share import EpochShare
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.partial_parameters import RowGradient
from gnnloom.trainer.models.networks.gat import NeighborOperator
from gnnloom.trainer.modes.epochs.learned_rows import gradient_of
from gnnloom.trainer.modes.epochs.mode import Mode, ModeContext, add_gradients, awaited
from gnnloom.trainer.operators.halo import ExchangedRows
from gnnloom.trainer.operators.p2p import SampledRows
from gnnloom.trainer.operators.whole_rows import AXIS
from gnnloom.trainer.tasks.objectives.masked_loss import MaskedLoss

#: Epochs whose division into batches is kept: the present one, and the one that is prepared ahead.
_EPOCHS = 2


@dataclass(frozen=True)
class _Share:
    """A rank's share of a batch that is ready for training.

    Attributes:
        number: of the batch, among those of all epochs.
        members: (num_rows,) int64 the rank's rows.
        loss: over these rows only; it sends nothing.
    """

    number: int
    operator: SampledRows
    members: torch.Tensor
    loss: MaskedLoss


class MinibatchMode(Mode):
    """Each epoch divides all vertices at random into batches; a step uses the graph that a batch induces.

    Losses depend on the number of ranks by rounding only.
    """

    def __init__(self, context: ModeContext) -> None:
        """Begin to prepare batches. Collective.

        Raises:
            CollectiveError: the transpose of a directed graph cannot be read.
        """
        super().__init__(context)
        options = context.options
        operator: NeighborOperator = context.operator  # type: ignore[assignment]
        self._whole, self._rows = context.operator, operator.neighbors(0).matrix
        self._transpose = together(context.comm, self._read_transpose)
        if self._transpose is not self._rows:
            vertex, rows = operator.layout(0).vertex, context.label_rows
            exchanged = ExchangedRows(f"{rows.shards.artifact.path}/{rows.prefix}", vertex, context.comm, context.place)
            exchanged.add(self._transpose)
            exchanged.agree()
        self._num_vertices, self._batch_size = context.shards.num_vertices, options["batch_size"]
        self._batches = -(-self._num_vertices // self._batch_size)
        #: A grid of this rank alone, for losses of its own rows.
        self._alone = ProcessGrid(self._whole.grid.group(()), {AXIS: 1}, context.place)
        self._lock = Lock()
        self._epoch_share = lru_cache(_EPOCHS)(self._divide)
        ready = prepare_ahead(self._prepare, self._numbers(), options["sampler_threads"], options["pool"])
        self._ready = awaited(ready, context.comm.traffic)

    def _read_transpose(self) -> ShardMatrix[CSR]:
        """The rank's rows of the transpose, from which what it sends follows; the adjacency's if both are equal."""
        if self.context.shards.symmetric:
            return self._rows
        shard: RowShard = self.context.label_rows  # type: ignore[assignment]
        return shard.matrix(transpose=True)

    def _numbers(self) -> Iterator[int]:
        epochs = self.context.epochs
        yield from range(epochs.start * self._batches, epochs.stop * self._batches)

    def _divide(self, epoch: int) -> EpochShare:
        vertex, sides = self._whole.layout(0).vertex, (self._rows, self._transpose)
        return EpochShare(vertex, *sides, self._num_vertices, self._batch_size, self.context.seed, epoch)

    def _prepare(self, number: int) -> _Share:
        """Restrict this rank's lists to a batch. Communicates nothing; several threads do so at a time."""
        context = self.context
        epoch, batch = divmod(number, self._batches)
        # Two threads would divide the same epoch.
        with self._lock:
            share = self._epoch_share(epoch)
        rows = share.rows(batch, context.normalization, context.place)
        operator = SampledRows(self._whole.grid, rows, multiplies=type(context.model).multiplies)
        members = context.place.from_numpy(share.members(batch))
        layout = Layout(self._alone, rows.vertex, (AXIS,))
        loss = context.vertex_objective.loss(layout, context.labels.take(members))
        return _Share(number, operator, members, loss)

    def train_epoch(self, epoch: int, update: Callable[[], None]) -> float:  # noqa: ARG002 - batches come in order
        total = 0.0
        for _ in range(self._batches):
            share = next(self._ready)
            terms = self.context.place.tensor([share.loss.num_terms], torch.float64)
            self.context.comm.all_reduce(terms, Kind.LOSS)
            # A batch without training vertices has no gradient on any rank.
            if float(terms):
                total += self._train_batch(share, float(terms), update)
        return total

    def _train_batch(self, share: _Share, num_terms: float, update: Callable[[], None]) -> float:
        """Train one batch; returns this rank's contribution to the mean loss over all training vertices. Collective.

        Args:
            num_terms: terms of the loss of the batch on all ranks.
        """
        context, model = self.context, self.context.model
        model.zero_grad()
        learned = context.learned
        feature = context.inputs.value.detach().index_select(0, share.members).requires_grad_(learned is not None)
        total = add_gradients(model, share.number, share.operator, feature, share.loss, num_terms)
        if learned is not None:
            # The exchange of halos has returned what other ranks add to the gradients of these rows.
            learned.row_gradient = RowGradient(share.members, gradient_of(feature, context.place))
        update()
        return total / context.loss.num_terms

    def close(self) -> None:
        self._ready.close()
