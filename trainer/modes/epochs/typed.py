"""``neighbor`` on a graph with types: steps on batches of the vertices of one type, or of the pairs of one relation.

Every rank maps the graph, so any rank can make any batch, and an epoch has the same batches on any number of ranks:
rank r of P takes batches r, P + r, and so on, and a step takes the mean over the batches of all ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from torch import Tensor

from gnnloom.storage.sampling.layers.options import relation_fanouts
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.feed.batches import Batches
from gnnloom.trainer.models.networks.typed_model import TypedModel
from gnnloom.trainer.modes.epochs.mode import Mode, ModeContext
from gnnloom.trainer.modes.epochs.model_inputs import TypedInputs
from gnnloom.trainer.modes.epochs.prepared import awaited, take_steps
from gnnloom.trainer.modes.epochs.typed_batches import (
    ExamplesOfRun,
    PairExamples,
    TypedExamples,
    VertexExamples,
    learned_rows,
    measured_rows,
)
from gnnloom.trainer.modes.neighbor import fanouts
from gnnloom.trainer.tasks.objectives.pairs import PairObjective


class TypedNeighborMode(Mode):
    """Steps on batches; a rank without a batch takes part in the sums of the last step."""

    def __init__(self, context: ModeContext) -> None:
        """Map what batches are made from. Collective.

        Raises:
            CollectiveError: the fan-outs do not fit the model, or stored data is gone.
        """
        super().__init__(context)
        comm, objective, given, model = context.comm, context.objective, context.given, context.model
        if not isinstance(model, TypedModel) or not isinstance(given, TypedInputs):
            raise TypeError(f"model {context.model_name}: takes no graph with types")
        self._model, self._given = model, given
        self._examples: ExamplesOfRun = (
            PairExamples(context, given, objective)
            if isinstance(objective, PairObjective)
            else VertexExamples(context, given)
        )
        self._batches = together(comm, self._open)
        self._numbers = range(comm.rank, self._batches.num_batches, comm.size)
        self._num_steps = -(-self._batches.num_batches // comm.size)

    def _open(self) -> Batches[TypedExamples]:
        options = self.context.options
        if self._given.packed is not None:
            return self._examples.open({})
        hops = fanouts(options["fanout"], self._model.num_layers, on_edges=True)
        return self._examples.open(relation_fanouts(options["relation_fanout"], hops, self._given.data.relation_names))

    def train_epoch(self, epoch: int, update: Callable[[], None]) -> float:
        options = self.context.options
        prepared = self._batches.of_epoch(epoch, self._numbers, options["sampler_threads"], options["pool"])
        with closing(awaited(prepared, self.context.comm.traffic)) as batches:
            return take_steps(self._model, epoch, self._num_steps, lambda: self._step(next(batches, None)), update)

    def _step(self, examples: TypedExamples | None) -> tuple[float, float]:
        """Form the gradients of a batch; returns this rank's contribution to the loss, and its terms. Collective."""
        loss = self._examples.loss(examples)
        self._model.zero_grad()
        if not loss.num_terms:
            return 0.0, 0.0
        batch = None if examples is None else examples.batch
        asked = learned_rows(self._given, None if batch is None else batch.fields, self.context.place)
        contribution = loss(self._model.scores_of(None if batch is None else batch.with_features(asked)))
        contribution.backward()  # type: ignore[no-untyped-call]
        for name, (vertices, rows) in asked.items():
            self._given.learned[name].give_back(vertices, rows)
        return float(contribution.detach()), loss.num_terms

    def scores(self) -> Tensor:
        """See :meth:`Mode.scores`."""
        return self._model.inference.of(measured_rows(self.context))
