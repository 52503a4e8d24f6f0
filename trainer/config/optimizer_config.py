"""The optimizer of a run, and how long it trains."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gnnloom.trainer.config.fields import Config, option


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Config):
    """Epochs, step size and weight decay."""

    epochs: int = option(100, "Number of epochs", free=True, least=1)
    lr: float = option(0.01, "Learning rate", below=math.inf)
    optimizer: str = option("adam", "Optimizer", choices=("adam", "sgd"))
    weight_decay: float = option(0.0, "Weight of the squared parameters in the loss", below=math.inf)
    weight_decay_layers: str = option(
        "all",
        "Layers whose parameters decay; Kipf and Welling use the first one only",
        choices=("all", "first"),
    )
