"""Errors of a regression over the vertices of all ranks, on any layout."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gnnloom.storage.format.vertex_arrays import SPLIT
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.vertex_data import Labels
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.training.splits import PREFIXES

_FIGURES = ("rmse", "mae", "r2")


class RegressionErrors:
    """Root mean squared error, mean absolute error and R2 of each split, over the known targets.

    R2 is the mean over the columns of 1 - (sum of squared errors) / (sum of squared deviations from the split's mean),
    as in scikit-learn. A column whose targets are all the same in a split has no R2.
    """

    def __init__(self, layout: Layout, labels: Labels) -> None:
        """Sum the targets of all ranks. Collective.

        Args:
            layout: layout of the scores.
        """
        self._layout, self._num_targets = layout, labels.num_classes
        self._columns = layout.columns(labels.num_classes)
        target = labels.label[:, self._columns].to(torch.float64)
        known = ~target.isnan()
        self._target = target.nan_to_num()
        self._chosen = [known & (labels.split == SPLIT[split]).unsqueeze(1) for split in PREFIXES.values()]
        # In two passes: the mean of squares minus the square of the mean would lose digits to cancellation.
        self._counts = self._sums([chosen.to(torch.float64) for chosen in self._chosen])
        mean = self._sums([self._target * chosen for chosen in self._chosen]) / self._counts.clamp_min(1)
        mean = mean[:, self._columns]
        deviations = [((self._target - mean[number]) * chosen).square() for number, chosen in enumerate(self._chosen)]
        self._deviations = self._sums(deviations)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{prefix}_{figure}" for figure in _FIGURES for prefix in PREFIXES)

    def __call__(self, scores: Tensor) -> dict[str, float | None]:
        """The figures over all ranks; None for a split without known targets. Collective."""
        error = scores.to(torch.float64) - self._target
        # One message for both.
        sums = self._sums(
            [(error * chosen).square() for chosen in self._chosen] + [(error * chosen).abs() for chosen in self._chosen]
        )
        squares, absolute = sums[: len(PREFIXES)], sums[len(PREFIXES) :]
        found: dict[str, float | None] = {}
        for number, prefix in enumerate(PREFIXES):
            count = float(self._counts[number].sum())
            found[f"{prefix}_rmse"] = math.sqrt(float(squares[number].sum()) / count) if count else None
            found[f"{prefix}_mae"] = float(absolute[number].sum()) / count if count else None
            found[f"{prefix}_r2"] = self._r2(squares[number], self._deviations[number])
        return {name: found[name] for name in self.names}

    def _r2(self, squares: Tensor, deviations: Tensor) -> float | None:
        varies = deviations > 0
        return float((1 - squares[varies] / deviations[varies]).mean()) if bool(varies.any()) else None

    def _sums(self, columns: list[Tensor]) -> Tensor:
        """(len(columns), num_targets) float64, the column sums of all ranks. Collective."""
        total = torch.zeros(len(columns), self._num_targets, dtype=torch.float64)
        if self._layout.speaks_for_piece(self._layout.grid.axes):
            total[:, self._columns] = torch.stack([each.sum(0) for each in columns])
        self._layout.grid.comm.all_reduce(total, Kind.METRICS)
        return total
