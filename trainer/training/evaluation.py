"""Measures the parameters of a training on the whole graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm.agreement import CollectiveError, together
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.modes.epochs.mode import Mode
from gnnloom.trainer.place.global_generator import Draws
from gnnloom.trainer.tasks.objectives.objective import StepLoss
from gnnloom.trainer.tasks.objectives.own_functions import OwnFunction
from gnnloom.trainer.tasks.objectives.vertex_objective import VertexObjective, WithOwnMetric, own_figure
from gnnloom.trainer.tasks.task import PREFIXES
from gnnloom.trainer.training.course import VAL_LOSS
from gnnloom.trainer.training.session import Session


class Evaluation:
    """The metrics of the task and the user's, the same on every rank.

    Attributes:
        figures: what is reported, by the names of the metrics.
        details: more about the test split, of the last evaluation that was asked for it.
        measured: the rows of the scores that a mode is to form; see
            :class:`~gnnloom.trainer.modes.epochs.mode.ModeContext`.
    """

    def __init__(self, session: Session, labels: Any, own: OwnFunction | None) -> None:
        """Prepare the metrics. Collective.

        Raises:
            CollectiveError: a metric of the task has the name of the user's function.
        """
        objective, layout = session.objective, session.operator.layout(session.model.num_layers)
        self.measured = measured_rows(session, labels)
        labels = labels if self.measured is None else labels.take(self.measured)
        self._session, self._layout, self._labels = session, layout, labels
        self._metrics = metrics = objective.metrics(layout, labels)
        figures = objective.task.figures
        if own is not None and isinstance(objective, VertexObjective):
            self._metrics = together(session.comm, lambda: WithOwnMetric(metrics, layout, labels, objective, own))
            figures = (*figures, own_figure(own))
        self.figures = {name: figure for figure in figures for name in figure.names}
        self.details: dict[str, Any] | None = None
        self._decisive = set[str]()
        self._val_loss: StepLoss | None = None

    def decide(self, decisive: set[str]) -> None:
        """Insist on metrics that something about the run depends on, the loss of the validation split included."""
        self._decisive = decisive
        if VAL_LOSS in decisive:
            unweighted = replace(self._session.objective, class_weights=None)
            self._val_loss = unweighted.loss(self._layout, self._labels, "valid")

    def measure(self, mode: Mode, epoch: int, *, is_last: bool) -> dict[str, float | None]:
        """The metrics of the present parameters; the figures of every class too if they are the last. Collective.

        Args:
            mode: forms the scores.
            epoch: number of epochs that are done.

        Raises:
            CollectiveError: no vertex has the label that a metric needs which decides about the run.
        """
        session = self._session
        session.model.eval()
        # A separate traffic record, so the epoch's own counts only training.
        with torch.no_grad(), session.drawing(Draws.EVALUATION, epoch), session.comm.traffic.recording():
            scores = mode.scores()
            if is_last:
                self.details = session.objective.details(self._layout, self._labels, scores)
            figures = self._metrics(scores)
            if self._val_loss is not None:
                figures |= {VAL_LOSS: self._total_loss(self._val_loss, scores)}
            # As the first rank has them: sums over ranks may end in other bits on each. Whether a figure has a value
            # depends on counts, which are exact.
            known = {name: value for name, value in figures.items() if value is not None}
            values = session.place.tensor(list(known.values()), torch.float64)
            session.comm.broadcast(values, 0, Kind.METRICS)
            figures |= dict(zip(known, values.tolist(), strict=True))
        without = sorted(name for name in self._decisive if figures.get(name, 0) is None)
        if without:
            message = f"{without[0]} decides about this run, but it has no value: no vertex of its split has a label"
            raise CollectiveError(message, reports=session.comm.rank == 0, code=InputError.exit_code)
        return figures

    def _total_loss(self, loss: StepLoss, scores: torch.Tensor) -> float | None:
        """A loss over all ranks; None if it has no vertex. Collective."""
        if not loss.num_terms:
            return None
        total = loss(scores).detach().reshape(1)
        self._session.comm.all_reduce(total, Kind.METRICS)
        return float(total)


def measured_rows(session: Session, labels: Any) -> torch.Tensor | None:
    """This rank's rows that metrics read; None for all. Communicates nothing.

    If the rows of the shards are on disk, so are the scores. In a graph with few labels, only the scores of labeled
    vertices are computed: all scores would need space for all classes of all vertices.
    """
    objective = session.objective
    if not session.config.mode.reads_batches or not isinstance(objective, VertexObjective):
        return None
    known = session.place.lasting(tuple(labels.split.shape), torch.bool)
    for split in PREFIXES.values():
        known |= objective.known(labels, split)
    return known.nonzero().squeeze(1) if 2 * int(known.sum()) < len(known) else None
