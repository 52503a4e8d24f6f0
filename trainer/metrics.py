"""Accuracy over the vertices of all ranks, on any layout."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from mpi4py import MPI
from torch import Tensor

from gnnloom.storage.vertices import SPLIT
from gnnloom.trainer.comm import Kind
from gnnloom.trainer.layout import Layout

#: Names of the figures, in the order of the splits.
ACCURACIES = {"train_accuracy": SPLIT["train"], "val_accuracy": SPLIT["valid"], "test_accuracy": SPLIT["test"]}


@dataclass(frozen=True)
class Accuracy:
    """Share of the labelled vertices of each split whose highest score is that of their label.

    Attributes:
        layout: of the scores.
        label: (num_rows,) int64, -1 where there is none.
        split: (num_rows,) uint8.
    """

    layout: Layout
    label: Tensor
    split: Tensor
    num_classes: int

    def __call__(self, scores: Tensor) -> dict[str, float | None]:
        """The accuracies over all ranks; None for a split without labelled vertices. Collective."""
        right = predicted_class(self.layout, scores, self.num_classes) == self.label
        counts = torch.zeros(len(ACCURACIES), 2, dtype=torch.int64)
        if self.layout.speaks_for_rows:
            for number, value in enumerate(ACCURACIES.values()):
                chosen = (self.split == value) & (self.label >= 0)
                counts[number, 0] = (right & chosen).sum()
                counts[number, 1] = chosen.sum()
        self.layout.grid.comm.all_reduce(counts, Kind.METRICS)
        pairs = zip(ACCURACIES, counts.tolist(), strict=True)
        return {name: correct / count if count else None for name, (correct, count) in pairs}


def predicted_class(layout: Layout, scores: Tensor, num_classes: int) -> Tensor:
    """(num_rows,) int64, the class of the highest score, the lowest among equals. Collective.

    Args:
        scores: (num_rows, columns held) of the layout.
    """
    group = layout.column_group
    if group.size == 1:
        return scores.argmax(1)
    highest = scores.amax(1) if scores.shape[1] else scores.new_full((len(scores),), -torch.inf)
    overall = highest.clone()
    group.all_reduce(overall, Kind.METRICS, MPI.MAX)
    winner = torch.full((len(scores),), num_classes, dtype=torch.int64)
    if scores.shape[1]:
        mine = highest == overall
        winner[mine] = scores[mine].argmax(1) + layout.columns(num_classes).start
    group.all_reduce(winner, Kind.METRICS, MPI.MIN)
    return winner
