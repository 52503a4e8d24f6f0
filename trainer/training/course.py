"""Follows the metrics of a run, which decide its learning rate, its early end, and its best checkpoint.

A learning rate depends only on the configuration, the epoch, and the lines of metrics before it, which are stored: a
resumed run goes on as if it had not been interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gnnloom.storage.errors import CorruptError, InputError
from gnnloom.storage.runs.checkpoint import checkpoint_facts
from gnnloom.storage.runs.run import Run
from gnnloom.storage.wording import did_you_mean
from gnnloom.trainer.config.optimization_config import OptimizationConfig, StoppingConfig
from gnnloom.trainer.config.run_config import RunConfig
from gnnloom.trainer.tasks.task import Figure, judge_of

#: The training loss, which every epoch has, and the loss of the validation split, which is computed on request.
LOSS, VAL_LOSS = "loss", "val_loss"
#: Share by which a metric has to improve to end a plateau, as in torch.
_PLATEAU_THRESHOLD: Final = 1e-4


@dataclass(frozen=True)
class Metric:
    """A metric of the lines that a run writes.

    Attributes:
        lower: lower is better.
    """

    name: str
    lower: bool

    def improves(self, value: float, before: float | None, threshold: float = 0.0) -> bool:
        """Whether a value is the first one, or better than the previous value by a share of the previous value."""
        if before is None:
            return True
        return value < before * (1 - threshold) if self.lower else value > before * (1 + threshold)


def find_metric(option: str, name: str, figures: Mapping[str, Figure]) -> Metric:
    """Find the metric that an option names.

    Args:
        option: name of the option, for messages.
        name: name of the metric; ``auto`` for the run's main figure on the validation split.
        figures: metrics that the run reports.

    Raises:
        InputError: the run reports no such metric.
    """
    if name == "auto":
        name = f"val_{judge_of(list(figures.values())).name}"
    known = {LOSS: True, VAL_LOSS: True} | {each: figure.lower for each, figure in figures.items()}
    if name not in known:
        hint = did_you_mean(name, known, "there are")
        raise InputError(f"{option} {name!r}: this run reports no such metric; {hint}")
    return Metric(name, known[name])


class BestValue:
    """The best value of a metric among the lines seen so far.

    Values that are better by no more than the share ``threshold`` do not count as better.

    Attributes:
        value: the best value; None before the first value.
        epoch: epoch of the best value, or of :meth:`restart` if that came later.
        seen: epoch of the last line that had the metric.
    """

    def __init__(self, metric: Metric, threshold: float = 0.0) -> None:
        self.metric, self._threshold = metric, threshold
        self.value: float | None = None
        self.epoch = self.seen = -1

    def observe(self, line: Mapping[str, Any]) -> bool:
        """Record the line of an epoch; returns whether its value is the best so far."""
        value = line.get(self.metric.name)
        if value is None:
            return False
        self.seen = line["epoch"]
        if not self.metric.improves(value, self.value, self._threshold):
            return False
        self.value, self.epoch = value, line["epoch"]
        return True

    @property
    def epochs_without(self) -> int:
        """Number of epochs since the best value, or since :meth:`restart`."""
        return self.seen - self.epoch

    def restart(self) -> None:
        """Count the epochs without improvement from the last line on."""
        self.epoch = self.seen


class Schedule:
    """The learning rate of every epoch."""

    def __init__(self, config: OptimizationConfig, metric: Metric) -> None:
        """Begin before the first epoch.

        Args:
            metric: the metric that the plateau schedule follows.
        """
        self._config = config
        self._best, self._reductions = BestValue(metric, _PLATEAU_THRESHOLD), 0

    @property
    def is_constant(self) -> bool:
        return self._config.schedule == "constant" and not self._config.warmup_epochs

    def observe(self, line: Mapping[str, Any]) -> None:
        """Take in the line of an epoch; lines come in order, each once."""
        # Like torch's ReduceLROnPlateau with a step per epoch. An evaluation stands for all epochs since the previous
        # evaluation, so that a number of epochs has the same meaning for any frequency of evaluations.
        self._best.observe(line)
        # A loss may rise while the learning rate rises.
        if line["epoch"] < self._config.warmup_epochs:
            self._best.restart()
        elif self._best.epochs_without > self._config.plateau_epochs:
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


@dataclass(frozen=True)
class KeptBest:
    """The best checkpoint that a run has on disk: its number of epochs, and the metric that chose it."""

    epochs: int
    metric: str
    value: float

    @classmethod
    def read(cls, run: Run) -> KeptBest | None:
        """The best checkpoint of a run; None if the run keeps none.

        Raises:
            CorruptError: the index of the checkpoint lacks the metric.
        """
        stored = checkpoint_facts(run.best_checkpoint)
        if stored is None:
            return None
        epochs, facts = stored
        if not isinstance(facts.get("metric"), str) or not isinstance(facts.get("value"), int | float):
            raise CorruptError(f"{run.best_checkpoint}: the best checkpoint lacks its metric; remove this folder")
        return cls(epochs, facts["metric"], facts["value"])

    @property
    def facts(self) -> dict[str, Any]:
        return {"metric": self.metric, "value": self.value}


class Course:
    """Follows the lines of a run; the same on every rank.

    Attributes:
        schedule: the learning rates.
        best: the best checkpoint so far; None if the run keeps none, or has not measured any yet.
    """

    def __init__(
        self,
        stopping: StoppingConfig,
        optimization: OptimizationConfig,
        run: RunConfig,
        figures: Mapping[str, Figure],
        best: KeptBest | None,
    ) -> None:
        """Begin before the first epoch.

        Args:
            run: says when the run evaluates.
            figures: metrics that the run reports, by name.
            best: the best checkpoint on disk, if the run goes on from it.

        Raises:
            InputError: an option names a metric that the run does not report, or does not measure during training.
        """
        monitored = find_metric("monitor", stopping.monitor, figures)
        follows = stopping.patience > 0 or optimization.schedule == "plateau"
        if follows and monitored.name != LOSS and not run.eval_every:
            raise InputError(f"monitor {monitored.name}: it is measured only at the end; set eval_every, such as to 1")
        keeps = stopping.keep_best != "none"
        if keeps and stopping.keep_best != LOSS and not run.evaluates:
            raise InputError(f"keep_best {stopping.keep_best}: the run measures no metrics; leave out --no-final-eval")
        self._kept = BestValue(find_metric("keep_best", stopping.keep_best, figures)) if keeps else None
        self._monitored, self._patience = BestValue(monitored), stopping.patience
        self.schedule = Schedule(optimization, monitored)
        # A checkpoint that another metric chose is replaced by the first checkpoint that this metric chooses.
        self.best = best if self._kept and best and best.metric == self._kept.metric.name else None
        if self._kept and self.best:
            self._kept.value = self.best.value
        decides = {self._monitored.metric.name} if follows else set()
        #: Metrics on which a decision depends.
        self.decisive = decides | ({self._kept.metric.name} if self._kept else set())

    def observe(self, line: Mapping[str, Any]) -> None:
        """Take in the line of an epoch; lines come in order, each once."""
        self._monitored.observe(line)
        self.schedule.observe(line)

    @property
    def ends(self) -> bool:
        """The monitored metric has not improved for ``patience`` epochs."""
        return self._patience > 0 and self._monitored.epochs_without >= self._patience

    def improves(self, line: Mapping[str, Any]) -> bool:
        """Whether an epoch's checkpoint is the best so far; if so, it is recorded as the best."""
        if self._kept is None or not self._kept.observe(line):
            return False
        name = self._kept.metric.name
        self.best = KeptBest(line["epoch"] + 1, name, line[name])
        return True

    @property
    def summary(self) -> dict[str, Any]:
        """Entries of the result: the best checkpoint, and why the run ended early."""
        found: dict[str, Any] = {}
        if self.best is not None:
            found["best"] = {**self.best.facts, "epoch": self.best.epochs}
        if self.ends:
            monitored = self._monitored
            found["stopped_early"] = {
                "metric": monitored.metric.name,
                "patience": self._patience,
                "best_epoch": monitored.epoch + 1,
            }
        return found
