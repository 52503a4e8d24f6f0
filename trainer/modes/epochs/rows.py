"""``rows``: reads only the rows of batches of training vertices; every rank trains on the vertices that it owns.

Frasca et al., "SIGN: Scalable Inception Graph Neural Networks" (GRL+ workshop at ICML 2020), section 3: products with
the adjacency were computed before. The rows of all vertices with a label are copied to a temporary file, in which
batches are random accesses and evaluations one pass.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from gnnloom.storage.errors import InputError
from gnnloom.storage.sampling.vertex import batch_of
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.data.batch_share import Division
from gnnloom.trainer.data.vertex_numbers import number_vertices
from gnnloom.trainer.feed.batches import Batches, DividedBatches
from gnnloom.trainer.feed.feature_view import FeatureView
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.modes.epochs.model_inputs import StepInputs
from gnnloom.trainer.modes.epochs.prepared import Prepared, PreparedMode
from gnnloom.trainer.operators.whole_rows import AXIS, RowsOnly
from gnnloom.trainer.passes.rows_only import measured_scores, packed_view
from gnnloom.trainer.tasks.task import PREFIXES


class RowsMode(PreparedMode):
    """Each epoch divides the training vertices of all ranks at random into batches.

    A step takes the mean over a batch. Losses depend on the number of ranks only through rounding.
    """

    def _open(self) -> tuple[Batches[Prepared], FeatureView]:
        """Pack the rows of the vertices with a label. Collective.

        Raises:
            CollectiveError: a row cannot be read, or holds a value that is not a finite number.
        """
        context = self.context
        objective, labels = context.vertex_objective, context.labels
        if not isinstance(context.given, StepInputs):
            raise InputError("mode rows: the session has opened no rows")
        self._rows = context.given.rows
        self._measured = objective.known_rows(labels, PREFIXES.values(), context.place)
        packed = together(context.comm, lambda: self._rows.packed(self._measured))
        context.place.files.while_used(packed)
        #: Rows of this rank in the training split, and their numbers among the training rows of all ranks.
        self._training = objective.known_rows(labels, ["train"], context.place)
        self._number, total = number_vertices(
            context.comm, context.shards.num_vertices, self._rows.vertex[self._training], context.place
        )
        batches = DividedBatches(total, context.options["batch_size"], self._divide, self._taken)
        return batches, packed_view(self._rows, packed.values, self._measured, context.feature_norm, context.place)

    def _divide(self, epoch: int) -> Division:
        batches = self.batches
        batch = batch_of(batches.num_examples, batches.batch_size, self.context.seed, epoch, self._number)
        return Division(batch, batches.num_batches)

    def _taken(self, division: Division, batch: int, number: int) -> Prepared:
        """This rank's rows of a batch."""
        context, rows = self.context, self._training[division.members(batch)]
        vertex, labels = self._rows.vertex[rows], context.labels.at(rows, context.place)
        loss = context.vertex_objective.loss(Layout(self.alone, vertex, (AXIS,)), labels)
        return Prepared(number, vertex, RowsOnly(context.operator.grid, vertex), self.features.ahead(vertex), loss)

    def train_epoch(self, epoch: int, update: Callable[[], None]) -> float:  # noqa: ARG002 - batches come in order
        total = 0.0
        for _ in self.context.place.steps(range(self.batches.num_batches)):
            share = next(self._ready)
            # If the classes of a batch have no weight, it has no gradient on any rank.
            if terms := self._terms(share):
                total += self._train_batch(share, terms)
                update()
        return total / self.context.loss.num_terms

    def scores(self) -> Tensor:
        """See :meth:`Mode.scores`; zeros for vertices without a label, which no metric reads."""
        model = self.context.model
        return self.context.feed.scores(lambda: measured_scores(model, self._rows, self.features, self._measured))
