"""A metric that decides something about a run, and the best value that it has had."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from gnnloom.storage.errors import InputError
from gnnloom.trainer.tasks.task import Figure, judge_of

#: The training's loss, which every epoch has, and the loss of the validation split, which is formed on request.
LOSS, VAL_LOSS = "loss", "val_loss"


@dataclass(frozen=True)
class Metric:
    """A metric of the lines that a run writes.

    Attributes:
        lower: lower is better.
    """

    name: str
    lower: bool

    def improves(self, value: float, before: float | None) -> bool:
        """Whether a value is better than the one before, or the first one."""
        return before is None or (value < before if self.lower else value > before)


def find_metric(option: str, name: str, figures: Mapping[str, Figure]) -> Metric:
    """The metric that an option names.

    Args:
        option: name of the option, for messages.
        name: ``auto`` is the figure that judges the run, of the validation split.
        figures: metrics that the run reports.

    Raises:
        InputError: the run reports no such metric.
    """
    if name == "auto":
        name = f"val_{judge_of(list(figures.values())).name}"
    known = {LOSS: True, VAL_LOSS: True} | {each: figure.lower for each, figure in figures.items()}
    if name not in known:
        close = get_close_matches(name, known, 1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
        raise InputError(f"{option} {name!r}: this run reports no such metric; {hint}")
    return Metric(name, known[name])


class Best:
    """The best value of a metric among the lines seen so far.

    Attributes:
        value: None before the first one.
        epoch: epoch of the best value, or of :meth:`restart` if that came later.
        seen: epoch of the last line that had the metric.
    """

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.value: float | None = None
        self.epoch = self.seen = -1

    def observe(self, line: Mapping[str, Any]) -> bool:
        """Take in the line of an epoch; whether it is the best so far."""
        value = line.get(self.metric.name)
        if value is None:
            return False
        self.seen = line["epoch"]
        if not self.metric.improves(value, self.value):
            return False
        self.value, self.epoch = value, line["epoch"]
        return True

    @property
    def epochs_without(self) -> int:
        """Epochs that have passed since the best value, or since :meth:`restart`."""
        return self.seen - self.epoch

    def restart(self) -> None:
        """Count the epochs without improvement from the last line on."""
        self.epoch = self.seen
