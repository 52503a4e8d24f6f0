"""What a run predicts, minimizes and measures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Group
from gnnloom.trainer.config.fields import Config, option
from gnnloom.trainer.tasks.registry import AUTO, TASKS, task_of_data
from gnnloom.trainer.tasks.task import Arrays, LabelSizes, Task

#: Values of ``class_weights`` other than a list of numbers.
NO_WEIGHTS, BALANCED = "none", "balanced"


_option = partial(option, group=Group.TASK)


@dataclass(frozen=True, kw_only=True)
class LossConfig(Config):
    """The task, its loss, the weights of the classes in it, and a metric of the user's own."""

    task: str = _option(AUTO, "What to predict; auto: what the vertex data have", choices=(AUTO, *TASKS))
    loss: str = _option(
        "auto",
        "Loss: the usual one of the task, or a function of your own as package.module:function",
        choices=("auto",),
        importable=True,
    )
    class_weights: str = _option(
        NO_WEIGHTS,
        "Weights of the classes in the loss: none, balanced (inverse to their numbers), or one per class such as 1,2.5",
    )
    metric: str = _option(
        "none",
        "Metric of your own to report too, as package.module:function",
        choices=("none",),
        importable=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # Only a check here; `given_class_weights` parses again.
        self.given_class_weights  # noqa: B018

    @property
    def given_class_weights(self) -> tuple[float, ...]:
        """The weights as numbers; empty if the option is a word.

        Raises:
            InputError: an item is not a number from 0 upwards, or all are 0.
        """
        if self.class_weights in {NO_WEIGHTS, BALANCED}:
            return ()
        try:
            weights = tuple(float(item) for item in self.class_weights.split(","))
        except ValueError:
            weights = ()
        if not any(weights) or not all(math.isfinite(weight) and weight >= 0 for weight in weights):
            raise InputError(
                f"class_weights {self.class_weights!r}: expected none, balanced, or a number from 0 upwards for each"
                " class, such as 1,2.5,0.5"
            )
        return weights

    def task_of(self, arrays: Arrays, sizes: LabelSizes, where: Path) -> Task:
        """The task for some data, which it and the weights of the classes must fit.

        Args:
            arrays: of the vertex data.
            where: place of the arrays, for messages.

        Raises:
            InputError: the array that the task predicts is missing, there is another number of classes, or the task
                has none.
        """
        task = task_of_data(self.task, arrays, where)
        # Data without labels are refused where they are read.
        if self.class_weights == NO_WEIGHTS or task.array not in arrays:
            return task
        given, num_classes = self.given_class_weights, task.width(sizes)
        if task.refused_weights is None:
            refused = f"task {task.name} has no classes to weigh; remove the option"
        else:
            refused = task.refused_weights(self.loss != "auto")
        if not refused and given and len(given) != num_classes:
            refused = f"{len(given)} weights, but the dataset has {num_classes} classes"
        if refused:
            raise InputError(f"class_weights {self.class_weights!r}: {refused}")
        return task
