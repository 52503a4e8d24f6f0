"""The labels of some rows, and their split."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Labels:
    """What some rows are to predict; only their task knows what the numbers mean.

    Attributes:
        label: (num_rows, ...) as the task's :meth:`~gnnloom.trainer.tasks.objectives.objective.Objective.read` has it.
        split: (num_rows,) uint8, see ``SPLIT``.
    """

    label: Tensor
    split: Tensor

    def take(self, rows: Tensor) -> Labels:
        """Those of some of the rows."""
        return Labels(self.label[rows], self.split[rows])
