"""The optimizer of a run, and how long it trains."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from gnnloom.storage.option import Group
from gnnloom.trainer.config.fields import Config, option

_option = partial(option, group=Group.OPTIMIZATION)


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Config):
    """Epochs, step size and weight decay."""

    epochs: int = _option(100, "Number of epochs", free=True, is_common=True, least=1)
    lr: float = _option(0.01, "Learning rate", is_common=True, below=math.inf)
    optimizer: str = _option("adam", "Optimizer", choices=("adam", "sgd"))
    weight_decay: float = _option(0.0, "Weight of the squared parameters in the loss", is_common=True, below=math.inf)
    weight_decay_layers: str = _option(
        "all",
        "Layers whose parameters decay; Kipf and Welling use the first one only",
        choices=("all", "first"),
    )
