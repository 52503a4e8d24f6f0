"""Options of optimization: the optimizer, its learning rates, and the metrics that decide when a run ends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gnnloom.storage.option import Group
from gnnloom.trainer.config.fields import Config, option

_option = partial(option, group=Group.OPTIMIZATION)


@dataclass(frozen=True, kw_only=True)
class OptimizationConfig(Config):
    """Epochs, the optimizer, and its learning rates; ``schedule_epochs`` holds the resolved value of 0."""

    epochs: int = _option(100, "Number of epochs", free=True, is_common=True, least=1)
    lr: float = _option(0.01, "Learning rate", is_common=True, below=math.inf)
    optimizer: str = _option("adam", "Optimizer", choices=("adam", "sgd"))
    weight_decay: float = _option(
        0.0, "L2 penalty: weight of the squared parameters in the loss", is_common=True, below=math.inf
    )
    weight_decay_layers: str = _option(
        "all",
        "Layers whose parameters decay; Kipf and Welling use the first one only",
        choices=("all", "first"),
    )
    schedule: str = _option(
        "constant",
        "Schedule of the learning rate: constant, a half cosine, reduced in steps, or reduced when a metric stops"
        " improving",
        choices=("constant", "cosine", "step", "plateau"),
    )
    warmup_epochs: int = _option(0, "Number of first epochs in which the learning rate rises linearly", least=0)
    schedule_epochs: int = _option(
        0,
        "Length of a cosine schedule in epochs; 0: all epochs",
        needs={"schedule": ("cosine",)},
        least=0,
    )
    step_epochs: int = _option(
        30, "Epochs between reductions of the learning rate (step)", needs={"schedule": ("step",)}, least=1
    )
    plateau_epochs: int = _option(
        10,
        "Epochs without improvement after which the learning rate is reduced (patience in torch) (plateau)",
        needs={"schedule": ("plateau",)},
        least=0,
    )
    lr_factor: float = _option(
        0.1,
        "Factor of a reduction of the learning rate (step, plateau)",
        needs={"schedule": ("step", "plateau")},
        below=1.0,
    )
    min_lr: float = _option(0.0, "Smallest learning rate of a schedule", below=math.inf)
    clip_norm: float = _option(
        0.0, "Maximum norm of the gradient of all parameters together; 0: no limit", below=math.inf
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # A resumed run may have more epochs, but must keep its original cosine.
        if self.schedule == "cosine" and self.schedule_epochs == 0:
            self.settle("schedule_epochs", self.epochs)


@dataclass(frozen=True, kw_only=True)
class StoppingConfig(Config):
    """Early stopping and the best checkpoint.

    Metrics are named as in the output, such as ``val_accuracy``, ``loss`` (of training) or ``val_loss``.
    """

    patience: int = _option(
        0,
        "Epochs without improvement of the monitored metric before training ends; 0: never",
        free=True,
        least=0,
    )
    monitor: str = _option(
        "auto",
        "Metric for --patience and --schedule plateau, such as val_loss; auto: the first metric of the validation"
        " split",
    )
    keep_best: str = _option(
        "none",
        "Also keep the checkpoint with the best value of this metric, for predictions; auto: the first metric of"
        " the validation split",
        group=Group.CHECKPOINTS,
        free=True,
    )


def ended_early(result: Mapping[str, Any], patience: int) -> bool:
    """Whether a finished run ended early, and would also have with this patience."""
    stopped = result.get("stopped_early")
    return stopped is not None and 0 < patience <= stopped["patience"]
