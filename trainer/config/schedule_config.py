"""How the learning rate changes over the epochs, and the limit of a step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gnnloom.trainer.config.fields import option
from gnnloom.trainer.config.optimizer_config import OptimizerConfig


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig(OptimizerConfig):
    """A learning-rate schedule; ``schedule_epochs`` holds the number that 0 stood for."""

    schedule: str = option(
        "constant",
        "Learning rate over the epochs: constant, a half cosine, reduced in steps, or when a metric stops improving",
        choices=("constant", "cosine", "step", "plateau"),
    )
    warmup_epochs: int = option(0, "Epochs in which the learning rate first rises, linearly", least=0)
    schedule_epochs: int = option(0, "Epochs after which a cosine schedule has ended; 0: all epochs", least=0)
    step_epochs: int = option(30, "Epochs between reductions of the learning rate (step)", least=1)
    plateau_epochs: int = option(
        10, "Epochs without improvement before the learning rate is reduced (plateau)", least=1
    )
    lr_factor: float = option(0.1, "Factor of a reduction of the learning rate (step, plateau)", below=1.0)
    min_lr: float = option(0.0, "Smallest learning rate of a schedule", below=math.inf)
    clip_norm: float = option(
        0.0, "Largest length of the gradient of all parameters together; 0: no limit", below=math.inf
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # A resumed run may have more epochs, but its cosine must be the one that it began with.
        if self.schedule == "cosine" and self.schedule_epochs == 0:
            self.settle("schedule_epochs", self.epochs)
