"""A metric that a user writes, next to those of the task."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.vertex_data import Labels
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.training.metrics import Metrics
from gnnloom.trainer.training.own_functions import OwnFunction
from gnnloom.trainer.training.splits import PREFIXES


class WithOwnMetric:
    """The metrics of a task, and the mean of a user's function over each split."""

    def __init__(self, metrics: Metrics, layout: Layout, labels: Labels, function: OwnFunction) -> None:
        """Remember what to measure. Communicates nothing.

        Args:
            layout: layout of the scores, with whole rows.

        Raises:
            InputError: a metric of the task has the function's name.
        """
        self._metrics, self._layout, self._function = metrics, layout, function
        self._names = _names(function)
        if set(self._names) & set(metrics.names):
            raise InputError(f"metric: {', '.join(metrics.names)} are metrics of the task; rename the function")
        self._label = labels.label
        self._rows = [labels.known(split).nonzero().squeeze(1) for split in PREFIXES.values()]

    @property
    def names(self) -> tuple[str, ...]:
        return (*self._metrics.names, *self._names)

    def __call__(self, scores: Tensor) -> dict[str, float | None]:
        """The figures over all ranks; None for a split without known labels. Collective."""
        figures = self._metrics(scores)
        totals = torch.zeros(len(self._names), 2, dtype=torch.float64)
        for number, rows in enumerate(self._rows):
            # A function may fail on no rows at all.
            if len(rows) and self._layout.speaks_for_rows:
                totals[number, 0] = self._function(scores[rows], self._label[rows]).sum(dtype=torch.float64)
                totals[number, 1] = len(rows)
        self._layout.grid.comm.all_reduce(totals, Kind.METRICS)
        means = {name: total / count if count else None for name, (total, count) in self._pairs(totals)}
        return {**figures, **means}

    def _pairs(self, totals: Tensor) -> list[tuple[str, list[float]]]:
        return list(zip(self._names, totals.tolist(), strict=True))


def lower_is_better(function: OwnFunction | None) -> dict[str, bool]:
    """The names under which a user's function is reported, and whether lower is better."""
    lower = not getattr(function, "higher_is_better", True)
    return {} if function is None else dict.fromkeys(_names(function), lower)


def _names(function: OwnFunction) -> tuple[str, ...]:
    name = getattr(function, "__name__", type(function).__name__)
    return tuple(f"{prefix}_{name}" for prefix in PREFIXES)
