"""Common base of tasks on vertices: the labels and the split of a rank's rows, and a mean over rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import SPLIT
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.open_shards import VertexRows
from gnnloom.trainer.data.vertex_data import Labels, read_array
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.objectives.masked_loss import MaskedLoss
from gnnloom.trainer.tasks.objectives.objective import Metrics, Objective
from gnnloom.trainer.tasks.objectives.own_functions import MaskedOwnLoss, OwnFunction
from gnnloom.trainer.tasks.task import PREFIXES, Figure


@dataclass(frozen=True)
class VertexObjective(Objective[Labels]):
    """A task on vertices: labels have one row for each row of the scores."""

    def read(self, rows: VertexRows, place: Place) -> Labels:
        """Read the labels and the split of some rows. Communicates nothing.

        Raises:
            InputError: an array is missing, or has values that the task cannot use.
        """
        label, split = self.read_label(rows), read_array(rows, "split")
        return Labels.of(label, split, place)

    @abstractmethod
    def read_label(self, rows: VertexRows) -> NDArray[Any]:
        """(num_rows, ...) the labels of some rows, checked; see :meth:`read`."""

    def is_known(self, label: Tensor) -> Tensor:
        """Bool of the shape of ``label``; negative numbers stand for unknown ones."""
        return label >= 0

    def known(self, labels: Labels, split: str) -> Tensor:
        """(num_rows,) bool: rows of a split with at least one known label."""
        known = self.is_known(labels.label)
        return (labels.split == SPLIT[split]) & (known.any(1) if known.dim() == 2 else known)

    def known_rows(self, labels: Labels, splits: Iterable[str], place: Place) -> NDArray[np.int64]:
        """(num_known,) int64, ascending: rows of some splits with a known label."""
        known = torch.stack([self.known(labels, split) for split in splits]).any(0)
        return np.flatnonzero(place.to_numpy(known))

    def loss(
        self,
        layout: Layout,
        labels: Labels,
        split: str = "train",
        row_weights: Tensor | None = None,
    ) -> MaskedLoss:
        """The loss over the rows of a split. Collective.

        Args:
            layout: layout of the scores.
            row_weights: (num_rows,) float64 factors of the rows' terms; ``num_terms`` does not depend on them.
        """
        mask = self.known(labels, split)
        if self.own_loss is None:
            loss = self.task_loss(layout, labels, mask)
        else:
            loss = MaskedOwnLoss(layout, labels.label, mask, self.own_loss, self.class_weights)
        loss.weigh_rows(row_weights)
        return loss

    @abstractmethod
    def task_loss(self, layout: Layout, labels: Labels, mask: Tensor) -> MaskedLoss:
        """The task's own loss over the rows in a mask, with the weights of the classes. Collective.

        Args:
            layout: layout of the scores.
            mask: (num_rows,) bool.
        """

    def class_counts(self, label: Tensor) -> Tensor:  # noqa: ARG002 - for subclasses
        """(num_outputs,) int64, how many of some rows have each class.

        Raises:
            InputError: the task lets classes have weights, but its objective does not count them.
        """
        raise InputError(f"task {self.task.name}: its objective allows weights of classes, so it needs class_counts")


def scores_by_class(hits: Tensor, predicted: Tensor, support: Tensor) -> dict[str, Any]:
    """The figures of every class; empty if no row has a class or was predicted to have one.

    Args:
        hits: (num_classes,) int64 rows of each class that were predicted to be of it.
        predicted: (num_classes,) int64 rows that were predicted to be of each class.
        support: (num_classes,) int64 rows of each class.

    Returns:
        ``per_class``: for each class its number ``class``, ``precision``, ``recall``, ``f1`` (0 where undefined) and
        ``support``.
    """
    if not int(support.sum()) and not int(predicted.sum()):
        return {}
    right = hits.to(torch.float64)
    figures = {
        "precision": right / predicted.clamp_min(1),
        "recall": right / support.clamp_min(1),
        "f1": 2 * right / (predicted + support).clamp_min(1),
        "support": support,
    }
    rows = zip(*(values.tolist() for values in figures.values()), strict=True)
    return {"per_class": [{"class": number, **dict(zip(figures, row, strict=True))} for number, row in enumerate(rows)]}


class WithOwnMetric:
    """The metrics of a task, and the mean of a user's function over each split."""

    def __init__(
        self, metrics: Metrics, layout: Layout, labels: Labels, objective: VertexObjective, function: OwnFunction
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
