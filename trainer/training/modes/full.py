"""``full``: one step per epoch, with the exact gradient of the whole graph."""

from __future__ import annotations

from collections.abc import Callable

from gnnloom.trainer.training.modes.mode import Mode


class FullMode(Mode):
    """Every vertex contributes to every step, as distributed by the algorithm."""

    def train_epoch(self, epoch: int, update: Callable[[], None]) -> float:
        model = self.context.model
        model.epoch = epoch
        model.zero_grad()
        contribution = self.context.loss(model(self.context.inputs))
        contribution.backward()  # type: ignore[no-untyped-call]
        update()
        return float(contribution.detach())
