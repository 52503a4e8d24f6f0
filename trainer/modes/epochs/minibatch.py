"""``minibatch``: all ranks train on the same batches of random vertices, each on the rows that it owns.

Demirci, Haldar, Ferhatosmanoglu, "Scalable Graph Convolutional Network Training on Distributed-Memory Systems"
(PVLDB 16(4), 2022), section 4.3.
"""

from __future__ import annotations

from collections.abc import Callable

from gnnloom.storage.matrix.csr import CSR
from gnnloom.storage.shards.row_shards import RowShard
from gnnloom.storage.shards.shard_matrix import ShardMatrix
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.data.batch_share import EpochShare
from gnnloom.trainer.feed.batches import Batches, DividedBatches
from gnnloom.trainer.feed.feature_view import FeatureView
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.models.networks.gat import NeighborOperator
from gnnloom.trainer.modes.epochs.prepared import Prepared, PreparedMode, features_in_memory
from gnnloom.trainer.operators.halo import ExchangedRows
from gnnloom.trainer.operators.p2p import SampledRows
from gnnloom.trainer.operators.whole_rows import AXIS


class MinibatchMode(PreparedMode):
    """Each epoch divides all vertices at random into batches; a step uses the graph that a batch induces.

    Losses depend on the number of ranks only through rounding.
    """

    def _open(self) -> tuple[Batches[Prepared], FeatureView]:
        """Read the rows that a batch is restricted from. Collective.

        Raises:
            CollectiveError: the transpose of a directed graph cannot be read.
        """
        context = self.context
        operator: NeighborOperator = context.operator  # type: ignore[assignment]
        self._whole, self._rows = context.operator, operator.neighbors(0).matrix
        self._transpose = together(context.comm, self._read_transpose)
        if self._transpose is not self._rows:
            vertex, rows = operator.layout(0).vertex, context.label_rows
            exchanged = ExchangedRows(f"{rows.shards.artifact.path}/{rows.prefix}", vertex, context.comm, context.place)
            exchanged.add(self._transpose)
            exchanged.agree()
        size = context.options["batch_size"]
        batches = DividedBatches(context.shards.num_vertices, size, self._divide, self._restricted)
        # The exchange of halos returns what other ranks add to the gradients of a rank's rows.
        return batches, features_in_memory(context, None)

    def _read_transpose(self) -> ShardMatrix[CSR]:
        """This rank's rows of the transpose, which determine its send lists; the adjacency's rows if both are equal."""
        if self.context.shards.symmetric:
            return self._rows
        shard: RowShard = self.context.label_rows  # type: ignore[assignment]
        return shard.matrix(transpose=True)

    def _divide(self, epoch: int) -> EpochShare:
        context, vertex, sides = self.context, self._whole.layout(0).vertex, (self._rows, self._transpose)
        batches = self.batches
        return EpochShare(vertex, *sides, batches.num_examples, batches.batch_size, context.seed, epoch)

    def _restricted(self, share: EpochShare, batch: int, number: int) -> Prepared:
        """This rank's lists, restricted to a batch."""
        context = self.context
        rows = share.rows(batch, context.normalization, context.place)
        operator = SampledRows(self._whole.grid, rows, multiplies=type(context.model).multiplies)
        labels = context.labels.at(share.members(batch), context.place)
        loss = context.vertex_objective.loss(Layout(self.alone, rows.vertex, (AXIS,)), labels)
        return Prepared(number, rows.vertex, operator, self.features.ahead(rows.vertex), loss)

    def train_epoch(self, epoch: int, update: Callable[[], None]) -> float:  # noqa: ARG002 - batches come in order
        total = 0.0
        for _ in self.context.place.steps(range(self.batches.num_batches)):
            share = next(self._ready)
            # A batch without training vertices has no gradient on any rank.
            if terms := self._terms(share):
                loss = self._train_batch(share, terms)
                update()
                # The rank's share of the mean over all training vertices.
                total += loss / self.context.loss.num_terms
        return total
