"""Scores that are not numbers give the same class whether the columns are on one rank or split."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from gnnloom.trainer.comm.communicator import Reduction
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.objectives.classes import predicted_class


class _Pair:
    """One of two ranks that run one after the other, again and again until they agree on what the other sent."""

    size = 2

    def __init__(self, sent: list[list[Tensor]], mine: int) -> None:
        self._sent, self._mine, self._step = sent, mine, 0

    def all_reduce(self, tensor: Tensor, kind: object, operation: Reduction) -> None:
        del kind
        self._sent[self._mine][self._step : self._step + 1] = [tensor.clone()]
        others = self._sent[1 - self._mine]
        if self._step < len(others):
            pick = torch.fmax if operation is Reduction.MAX else torch.minimum
            tensor.copy_(pick(tensor, others[self._step]))
        self._step += 1


@dataclass
class _Columns:
    """A layout that splits four columns over two ranks."""

    column_group: Any
    number: int
    place: Place = field(default_factory=Place)

    def columns(self, num_classes: int) -> slice:
        half = num_classes // 2
        return slice(self.number * half, (self.number + 1) * half)


def test_a_row_with_nan_gets_the_same_class_on_any_number_of_ranks() -> None:
    nan, inf = torch.nan, torch.inf
    scores = torch.tensor([[0.0, nan, 1.0, 2.0], [nan] * 4, [0.0, inf, nan, 1.0], [1.0, 2.0, 9.0, nan], [3.0, 1, 2, 0]])
    whole = _Columns(type("Alone", (), {"size": 1})(), 0)
    expected = predicted_class(cast("Any", whole), scores, 4)
    assert expected.tolist() == [1, 0, 1, 3, 0]
    sent: list[list[Tensor]] = [[], []]
    for _ in range(3):
        found = [
            predicted_class(cast("Any", _Columns(_Pair(sent, half), half)), scores[:, 2 * half : 2 * half + 2], 4)
            for half in (0, 1)
        ]
    assert [part.tolist() for part in found] == [expected.tolist()] * 2
