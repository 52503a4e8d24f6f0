"""A metric that a user writes, next to those of the task."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.vertex_data import Labels
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.tasks.objectives.objective import Metrics, Objective
from gnnloom.trainer.tasks.objectives.own_functions import OwnFunction
from gnnloom.trainer.tasks.task import PREFIXES, Figure


class WithOwnMetric:
    """The metrics of a task, and the mean of a user's function over each split."""

    def __init__(
        self, metrics: Metrics, layout: Layout, labels: Labels, objective: Objective, function: OwnFunction
    ) -> None:
        """Remember what to measure. Communicates nothing.

        Args:
            layout: layout of the scores, with whole rows.

        Raises:
            InputError: a metric of the task has the function's name.
        """
        self._metrics, self._layout, self._function = metrics, layout, function
        self._names = own_figure(function).names
        of_task = [name for figure in objective.task.figures for name in figure.names]
        if set(self._names) & set(of_task):
            raise InputError(f"metric: {', '.join(of_task)} are metrics of the task; rename the function")
        self._label = labels.label
        self._rows = [objective.known(labels, split).nonzero().squeeze(1) for split in PREFIXES.values()]

    def __call__(self, scores: Tensor) -> dict[str, float | None]:
        """The figures over all ranks; None for a split without known labels. Collective."""
        figures = self._metrics(scores)
        totals = self._layout.place.zeros((len(self._names), 2), torch.float64)
        for number, rows in enumerate(self._rows):
            # A function may fail on no rows at all.
            if len(rows) and self._layout.speaks_for_rows:
                totals[number, 0] = self._function(scores[rows], self._label[rows]).sum(dtype=torch.float64)
                totals[number, 1] = len(rows)
        self._layout.grid.comm.all_reduce(totals, Kind.METRICS)
        pairs = zip(self._names, totals.tolist(), strict=True)
        return {**figures, **{name: total / count if count else None for name, (total, count) in pairs}}


def own_figure(function: OwnFunction) -> Figure:
    """The figure that a user's function is reported as."""
    name = getattr(function, "__name__", type(function).__name__)
    return Figure(name, lower=not getattr(function, "higher_is_better", True))
