"""Numbers for each vertex: a regression."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.errors import InputError
from gnnloom.storage.wording import counted
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.open_shards import VertexRows
from gnnloom.trainer.data.vertex_data import Labels, read_array
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.tasks.objectives.by_element import MaskedSquaredError
from gnnloom.trainer.tasks.objectives.masked_loss import MaskedLoss
from gnnloom.trainer.tasks.objectives.objective import Metrics
from gnnloom.trainer.tasks.objectives.vertex_objective import VertexObjective
from gnnloom.trainer.tasks.task import CODES


@dataclass(frozen=True)
class Numbers(VertexObjective):
    """Labels are (num_rows, num_outputs) float, NaN for unknown; the scores are the prediction."""

    def read_label(self, rows: VertexRows) -> NDArray[Any]:
        target, num_targets = read_array(rows, self.task.array), rows.shards.num_targets
        where = f"{rows.shards.artifact.path}/{rows.prefix}/target"
        if target.shape[1] != num_targets:
            raise InputError(f"{where}: {counted(target.shape[1], 'column')}, expected {num_targets}")
        is_infinite = np.isinf(target).any(1)
        if is_infinite.any():
            row = int(is_infinite.argmax())
            raise InputError(f"{where}: vertex {int(rows.vertex()[row])} has an infinite value")
        return target

    def is_known(self, label: Tensor) -> Tensor:
        return ~label.isnan()

    def task_loss(self, layout: Layout, labels: Labels, mask: Tensor) -> MaskedLoss:
        return MaskedSquaredError(layout, labels.label, mask, self.num_outputs)

    def metrics(self, layout: Layout, labels: Labels) -> Metrics:
        return RegressionErrors(layout, labels, self.num_outputs)

    def predict(self, layout: Layout, scores: Tensor) -> dict[str, Tensor]:
        return {"target": self.whole(layout, scores)}


class RegressionErrors:
    """Root mean squared error, mean absolute error and R2 of each split, over the known targets.

    R2 is the mean over the columns of 1 - (sum of squared errors) / (sum of squared deviations from the split's mean),
    as in scikit-learn. A column whose targets are all the same in a split has no R2.
    """

    def __init__(self, layout: Layout, labels: Labels, num_targets: int) -> None:
        """Sum the targets of all ranks. Collective.

        Args:
            layout: layout of the scores.
        """
        self._layout, self._num_targets = layout, num_targets
        self._columns = layout.columns(num_targets)
        target = labels.label[:, self._columns].to(torch.float64)
        known = ~target.isnan()
        self._target = target.nan_to_num()
        self._chosen = [known & (labels.split == code).unsqueeze(1) for code in CODES.values()]
        # In two passes: the mean of squares minus the square of the mean would lose digits to cancellation.
        self._counts = self._sums([chosen.to(torch.float64) for chosen in self._chosen])
        mean = self._sums([self._target * chosen for chosen in self._chosen]) / self._counts.clamp_min(1)
        mean = mean[:, self._columns]
        deviations = [((self._target - mean[number]) * chosen).square() for number, chosen in enumerate(self._chosen)]
        self._deviations = self._sums(deviations)

    def __call__(self, scores: Tensor) -> dict[str, float | None]:
        """The figures over all ranks; None for a split without known targets. Collective."""
        error = scores.to(torch.float64) - self._target
        # One message for both.
        sums = self._sums(
            [(error * chosen).square() for chosen in self._chosen] + [(error * chosen).abs() for chosen in self._chosen]
        )
        squares, absolute = sums[: len(CODES)], sums[len(CODES) :]
        rmse, mae, r2 = dict[str, float | None](), dict[str, float | None](), dict[str, float | None]()
        for number, prefix in enumerate(CODES):
            count = float(self._counts[number].sum())
            rmse[f"{prefix}_rmse"] = math.sqrt(float(squares[number].sum()) / count) if count else None
            mae[f"{prefix}_mae"] = float(absolute[number].sum()) / count if count else None
            r2[f"{prefix}_r2"] = self._r2(squares[number], self._deviations[number])
        return {**rmse, **mae, **r2}

    def _r2(self, squares: Tensor, deviations: Tensor) -> float | None:
        varies = deviations > 0
        return float((1 - squares[varies] / deviations[varies]).mean()) if bool(varies.any()) else None

    def _sums(self, columns: list[Tensor]) -> Tensor:
        """(len(columns), num_targets) float64, the column sums of all ranks. Collective."""
        total = self._layout.place.zeros((len(columns), self._num_targets), torch.float64)
        if self._layout.speaks_for_piece(self._layout.grid.axes):
            total[:, self._columns] = torch.stack([each.sum(0) for each in columns])
        self._layout.grid.comm.all_reduce(total, Kind.METRICS)
        return total
