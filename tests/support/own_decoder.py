"""A decoder as a user writes it."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from gnnloom.trainer.links.decoder import Decoder


class Between(Decoder):
    """A matrix between both ends."""

    gives_several: ClassVar[bool] = False

    def create_parameters(self) -> None:
        self.between = nn.Linear(self.dim, self.dim)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        scores: Tensor = (self.between(source) * target).sum(1)
        return scores
