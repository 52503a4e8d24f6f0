"""Learning rates over the epochs.

A rate depends only on the configuration, the epoch, and the lines of metrics before it, which are stored: a resumed run
goes on as if it had not been interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gnnloom.trainer.config.schedule_config import ScheduleConfig
from gnnloom.trainer.training.monitor import Best, Metric


class Schedule:
    """The learning rate of every epoch."""

    def __init__(self, config: ScheduleConfig, metric: Metric) -> None:
        """Begin before the first epoch.

        Args:
            metric: the metric that the plateau schedule follows.
        """
        self._config = config
        self._best, self._reductions = Best(metric), 0

    @property
    def is_constant(self) -> bool:
        return self._config.schedule == "constant" and not self._config.warmup_epochs

    def observe(self, line: Mapping[str, Any]) -> None:
        """Take in the line of an epoch; lines come in order, each once."""
        # As torch's ReduceLROnPlateau, but in epochs instead of evaluations.
        self._best.observe(line)
        # A loss may rise while the learning rate does.
        if line["epoch"] < self._config.warmup_epochs:
            self._best.restart()
        elif self._best.epochs_without >= self._config.plateau_epochs:
            self._reductions += 1
            self._best.restart()

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch, after the lines of all epochs before it were observed."""
        config, after = self._config, epoch - self._config.warmup_epochs
        if after < 0:
            return config.lr * (epoch + 1) / config.warmup_epochs
        if config.schedule == "constant":
            return config.lr
        low = min(config.min_lr, config.lr)
        if config.schedule == "cosine":
            # Loshchilov, Hutter, "SGDR" (ICLR 2017), equation 5, without restarts.
            length = max(1, config.schedule_epochs - config.warmup_epochs)
            return low + (config.lr - low) * (1 + math.cos(math.pi * min(after, length) / length)) / 2
        steps = after // config.step_epochs if config.schedule == "step" else self._reductions
        return max(low, config.lr * config.lr_factor**steps)
