"""Smooths the predicted classes over the edges of the graph: label propagation, and Correct-and-Smooth.

Both multiply by D^-1/2 A D^-1/2, which the run's algorithm spreads over the ranks. A is the stored adjacency with its
self loops and weights, and D has the sums of its rows, also for directed graphs, as in PyTorch Geometric's ``gcn_norm``
for the same edges. The methods give the same results as PyTorch Geometric's ``LabelPropagation`` and
``CorrectAndSmooth``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from gnnloom.storage.errors import InputError
from gnnloom.storage.runs.predictions import SMOOTHED
from gnnloom.trainer.comm.agreement import together
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.config.smoothing_config import AUTO_SCALE, LABELS, SmoothingConfig
from gnnloom.trainer.data.open_shards import OwnRowShard
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.operators.operator import LayerPlan, Operator
from gnnloom.trainer.operators.p2p import PointToPoint
from gnnloom.trainer.passes.range_operator import RangeOperator
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.objectives.classes import Classes
from gnnloom.trainer.training.session import Session
from gnnloom.trainer.training.share import build_operator, vertex_rows

_NORMALIZATION: Final = "symmetric"
#: Larger factors of a vertex's propagated error are not applied, because they would magnify noise.
_LARGEST_FACTOR: Final = 1000.0


@dataclass(frozen=True)
class SmoothedPredictions:
    """Smoothed predictions of this rank's rows.

    Attributes:
        layout: layout of the rows.
        arrays: ``smoothed_label`` and ``smoothed_score``, whole rows.
        figures: metrics of every split before and after, the same on every rank.
    """

    layout: Layout
    arrays: dict[str, Tensor]
    figures: dict[str, float | None]


def objective_of(session: Session) -> Classes:
    """The objective of a run whose predictions can be smoothed.

    Raises:
        InputError: predictions are not one class per vertex, or the graph has types.
    """
    objective = session.objective
    if session.config.mode.on_types:
        raise InputError("smooth: the graph of this run has types, and predictions are smoothed on a graph without")
    if not isinstance(objective, Classes):
        task = objective.task.name
        raise InputError(f"smooth: works on one class per vertex (task class), but this run has task {task}")
    return objective


def smooth(session: Session, scores: Tensor, config: SmoothingConfig) -> SmoothedPredictions:
    """Smooth the predictions of a run. Collective.

    Args:
        scores: (num_rows, num_classes) whole rows of the model's output, before the softmax.

    Raises:
        CollectiveError: the run does not predict one class per vertex, the shards lack labels, or a degree is negative.
    """
    objective = together(session.comm, lambda: objective_of(session))
    num_classes = objective.num_outputs
    operator = together(session.comm, lambda: _operator(session, num_classes))
    if operator is not session.operator:
        operator.agree()
    before, layout = session.operator.layout(session.model.num_layers), operator.layout(0)
    rows = vertex_rows(session.opened.shards, layout, layout.row_axes)
    labels = together(session.comm, lambda: objective.read(rows, operator.grid.place))

    def placed(whole: Tensor) -> Tensor:
        """This rank's columns of whole rows of the model's output."""
        return operator.align(whole[:, before.columns(num_classes)], before, layout, num_classes)

    with torch.no_grad(), session.comm.traffic.recording():
        metrics = objective.metrics(layout, labels)
        figures = metrics(placed(scores))
        smoothing = Smoothing(operator, labels.label, objective.known(labels, "train"), num_classes, config)
        soft = None if config.smooth == LABELS else placed(torch.softmax(scores, 1))
        found = smoothing.of_labels() if soft is None else smoothing.of_scores(soft)
        figures |= {f"{SMOOTHED}{name}": value for name, value in metrics(found).items()}
        arrays = {f"{SMOOTHED}{name}": array for name, array in objective.predict(layout, found).items()}
    return SmoothedPredictions(layout, arrays, figures)


def _operator(session: Session, num_classes: int) -> Operator:
    """The products with the normalized adjacency. Communicates nothing.

    Raises:
        InputError: a degree is negative or not finite.
    """
    config, place = session.config, session.place
    suits = config.model.normalization == _NORMALIZATION and place.feature_dtype == place.sum_dtype
    if suits and isinstance(session.operator, PointToPoint):
        # A second operator would hold the adjacency twice.
        return session.operator
    shards = session.opened.shards
    if isinstance(session.operator, RangeOperator) and isinstance(shards, OwnRowShard):
        # The model predicts from disk because the adjacency may not fit.
        shard = shards.shards.shard(session.comm.rank, session.opened.counter, on_disk=True)
        shards = OwnRowShard(shard)
    # Many products follow each other, so no product is rounded to bfloat16.
    place = Place(place.sum_dtype, place.threads.num_threads)
    plan = LayerPlan((num_classes, num_classes), (True,))
    return build_operator(session.comm, session.opened, shards, _NORMALIZATION, place, plan, differentiates=False)


class Smoothing:
    """Label propagation and Correct-and-Smooth, for this rank's rows and columns of a matrix of class scores."""

    def __init__(
        self, operator: Operator, label: Tensor, is_given: Tensor, num_classes: int, config: SmoothingConfig
    ) -> None:
        """Communicates nothing.

        Args:
            operator: operator of the normalized adjacency; matrices have the layout of its first layer's input.
            label: (num_rows,) int64 classes.
            is_given: (num_rows,) bool, training vertices, whose labels are used.
        """
        self._operator, self._layout, self._num_classes = operator, operator.layout(0), num_classes
        self._config, self._place = config, operator.grid.place
        self._given = is_given.nonzero().squeeze(1)
        columns = self._layout.columns(num_classes)
        held = self._place.arange(columns.start, columns.stop)
        #: (training rows, columns held) 1 for the class of each row.
        self._one_hot = (label[self._given].unsqueeze(1) == held).to(self._place.sum_dtype)

    def of_labels(self) -> Tensor:
        """(num_rows, columns held) the training labels, propagated. Collective."""
        columns = self._layout.columns(self._num_classes)
        shape = self._layout.num_rows, columns.stop - columns.start
        return self._smoothed(self._place.lasting(shape, self._place.sum_dtype))

    def of_scores(self, scores: Tensor) -> Tensor:
        """(num_rows, columns held) corrected and smoothed probabilities of the classes. Collective.

        Args:
            scores: (num_rows, columns held) scores of the model.
        """
        return self._smoothed(scores + self._correction(scores))

    def _smoothed(self, start: Tensor) -> Tensor:
        """Propagate rows, after the rows of training vertices are replaced by their labels. Collective."""
        rows = start.index_copy(0, self._given, self._one_hot)
        steps, alpha = self._config.smooth_steps or 0, self._config.smooth_alpha or 0.0
        return self._propagated(rows, steps, alpha, lambda found: found.clamp_(0, 1))

    def _correction(self, scores: Tensor) -> Tensor:
        """The propagated errors of the training vertices, scaled. Collective."""
        config, error = self._config, self._one_hot - scores[self._given]
        start = self._place.lasting(scores.shape, scores.dtype).index_copy_(0, self._given, error)
        steps, alpha = config.correct_steps, config.correct_alpha
        if config.correct_scale != AUTO_SCALE:
            fixed = self._propagated(start, steps, alpha, lambda found: found.index_copy_(0, self._given, error))
            return fixed * config.correct_scale
        found = self._propagated(start, steps, alpha, lambda found: found.clamp_(-1, 1))
        length = found.abs().sum(1, keepdim=True)
        self._layout.column_group.all_reduce(length, Kind.PREDICTION)
        factor = self._mean_error(error) / length
        # Rows that no error has reached have length 0.
        factor[~(factor <= _LARGEST_FACTOR)] = 1.0
        return found * factor

    def _mean_error(self, error: Tensor) -> float:
        """The mean length of the errors of all training vertices, as a sum of absolute values. Collective."""
        layout, grid = self._layout, self._layout.grid
        total = float(error.abs().sum(dtype=torch.float64)) if layout.speaks_for_piece(grid.axes) else 0.0
        count = len(error) if layout.speaks_for_rows else 0
        sums = self._place.tensor([total, count], torch.float64)
        grid.comm.all_reduce(sums, Kind.PREDICTION)
        return float(sums[0] / sums[1].clamp_min(1))

    def _propagated(self, start: Tensor, steps: int, alpha: float, settle: Callable[[Tensor], object]) -> Tensor:
        """Repeatedly mix the neighbors' rows with the initial rows. Collective.

        Args:
            alpha: weight of the neighbors' rows.
            settle: changes the rows in place after every step.
        """
        source, target = self._operator.product_layouts(0)
        rest, rows = start * (1 - alpha), start
        for _ in range(steps):
            given = self._operator.align(rows, self._layout, source, self._num_classes)
            product = self._operator.propagate(given, 0)
            rows = self._operator.align(product, target, self._layout, self._num_classes)
            rows.mul_(alpha).add_(rest)
            settle(rows)
        return rows
