"""What metrics decide in a run: its learning rate, when it ends early, and which of its checkpoints is the best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnnloom.storage.errors import CorruptError, InputError
from gnnloom.storage.runs.checkpoint import checkpoint_facts
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.tasks.task import Figure
from gnnloom.trainer.training.monitor import LOSS, VAL_LOSS, Best, find_metric
from gnnloom.trainer.training.schedule import Schedule


@dataclass(frozen=True)
class KeptBest:
    """The best checkpoint that a run has on disk: its number of epochs, and the metric that chose it."""

    epochs: int
    metric: str
    value: float

    @classmethod
    def read(cls, run: Run) -> KeptBest | None:
        """The one of a run; None if it keeps none.

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

    def __init__(self, config: TrainConfig, figures: Mapping[str, Figure], best: KeptBest | None) -> None:
        """Begin before the first epoch.

        Args:
            figures: metrics that the run reports, by name.
            best: the best checkpoint on disk, if the run goes on from it.

        Raises:
            InputError: an option names a metric that the run does not report, or does not measure between its epochs.
        """
        monitored = find_metric("monitor", config.monitor, figures)
        if (config.patience or config.schedule == "plateau") and monitored.name != LOSS and not config.eval_every:
            raise InputError(f"monitor {monitored.name}: it is measured only at the end; set eval_every, such as to 1")
        keeps = config.keep_best != "none"
        if keeps and config.keep_best != LOSS and not config.evaluates:
            raise InputError(f"keep_best {config.keep_best}: the run measures no metrics; leave out --no-final-eval")
        self._kept = Best(find_metric("keep_best", config.keep_best, figures)) if keeps else None
        self._monitored, self._patience = Best(monitored), config.patience
        self.schedule = Schedule(config, monitored)
        # A checkpoint that another metric chose is replaced by the first one that this metric chooses.
        self.best = best if self._kept and best and best.metric == self._kept.metric.name else None
        if self._kept and self.best:
            self._kept.value = self.best.value
        decides = {self._monitored.metric.name} if config.patience or config.schedule == "plateau" else set()
        #: Metrics that something depends on.
        self.decisive = decides | ({self._kept.metric.name} if self._kept else set())

    @property
    def needs_val_loss(self) -> bool:
        return VAL_LOSS in self.decisive

    def observe(self, line: Mapping[str, Any]) -> None:
        """Take in the line of an epoch; lines come in order, each once."""
        self._monitored.observe(line)
        self.schedule.observe(line)

    @property
    def ends(self) -> bool:
        """The monitored metric has not improved for as many epochs as allowed."""
        return self._patience > 0 and self._monitored.epochs_without >= self._patience

    def improves(self, line: Mapping[str, Any]) -> bool:
        """Whether an epoch's checkpoint is the best so far; it is then remembered as that."""
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
