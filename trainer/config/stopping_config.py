"""Metrics that decide when a run ends and which of its checkpoints predicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnnloom.trainer.config.fields import Config, option


@dataclass(frozen=True, kw_only=True)
class StoppingConfig(Config):
    """Early stopping and the best checkpoint.

    Metrics are named as in the output, such as ``val_accuracy``, ``loss`` (of the training) or ``val_loss``.
    """

    patience: int = option(
        0,
        "Epochs without improvement of the monitored metric before training ends; 0: never",
        free=True,
        least=0,
    )
    monitor: str = option(
        "auto",
        "Metric for --patience and --schedule plateau, such as val_loss; auto: the validation split's first one",
    )
    keep_best: str = option(
        "none",
        "Also keep the checkpoint with the best value of this metric, to predict with; auto: the validation split's",
        free=True,
    )


def ended_early(result: Mapping[str, Any], patience: int) -> bool:
    """Whether a finished run ended early, and would have with this patience too."""
    stopped = result.get("stopped_early")
    return stopped is not None and 0 < patience <= stopped["patience"]
