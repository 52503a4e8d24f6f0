"""Options for the task of a run: its predictions, loss and metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Group, option_fields
from gnnloom.storage.wording import counted
from gnnloom.trainer.config.fields import Config, DescriptorOptions, check_owner, option
from gnnloom.trainer.links.decoders.registry import DECODERS
from gnnloom.trainer.tasks.registry import AUTO, TASKS, task_of_data
from gnnloom.trainer.tasks.task import Arrays, LabelSizes, Task

#: Values of ``class_weights`` other than a list of numbers.
NO_WEIGHTS, BALANCED = "none", "balanced"


_option = partial(option, group=Group.TASK)
#: Losses that belong to a task.
_LOSSES = {loss: kind.name for kind in TASKS.values() for loss in kind.losses}


TASK_OPTIONS = DescriptorOptions(TASKS, "task", Group.TASK)
# Free, because they affect only the results of tasks that have them.
_task_option = partial(TASK_OPTIONS.field, free=True)


@dataclass(frozen=True, kw_only=True)
class TaskConfig(Config):
    """The task and its options, its loss, the class weights in the loss, and the user's own metric.

    An option of another task is refused, because it would have no effect. The options of gnnloom's own tasks and
    decoders are fields. Options of other packages are ``task_options``, each as ``name=value``; they count as part of
    the run's identity if given.
    """

    name: str = _option(
        AUTO,
        "What to predict; auto: classes, labels or numbers, whichever the vertex data have",
        name="task",
        choices=(AUTO, *TASKS),
    )
    loss: str = _option(
        "auto",
        "Loss: the default of the task; for links bce, bpr, margin or ce; or a function of your own as"
        " package.module:function",
        choices=("auto", *_LOSSES),
        importable=True,
    )
    class_weights: str = _option(
        NO_WEIGHTS,
        "Weights of the classes in the loss: none, balanced (inverse to their numbers), or one per class such as 1,2.5",
    )
    metric: str = _option(
        "none",
        "Additional metric: a function of your own, as package.module:function",
        choices=("none",),
        importable=True,
    )
    links: str | None = _task_option("links")
    output_dim: int = _task_option("output_dim")
    decoder: str = _task_option("decoder")
    decoder_hidden: tuple[int, ...] = _task_option("decoder_hidden")
    link_batch: int = _task_option("link_batch")
    exclude_targets: bool = _task_option("exclude_targets")
    negatives: int = _task_option("negatives")
    negative_sampler: str = _task_option("negative_sampler")
    strict_negatives: bool = _task_option("strict_negatives")
    filtered_ranks: bool = _task_option("filtered_ranks")
    task_options: tuple[str, ...] = _option(
        (), "Options of tasks and decoders from other packages, each as name=value", free=True, kind=tuple[str, ...]
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # Only a check here; `given_class_weights` parses again.
        self.given_class_weights  # noqa: B018
        decoder = TASKS[self.name].usual_decoder if self.on_pairs and self.decoder == AUTO else self.decoder
        for name in [*self.changed(), *TASK_OPTIONS.other_values(self)]:
            check_owner(name, TASKS, "task", self.name)
            check_owner(name, DECODERS, "decoder", decoder)
        if self.loss in _LOSSES and self.loss not in (TASKS[self.name].losses if self.name in TASKS else ()):
            raise InputError(f"loss {self.loss!r}: a loss of task {_LOSSES[self.loss]}, not of task {self.name}")
        for name, is_own in (("loss", self.is_own_loss), ("metric", self.metric != "none")):
            if self.on_pairs and is_own:
                raise InputError(f"{name} {getattr(self, name)!r}: task {self.name} takes no function of your own")

    @property
    def is_own_loss(self) -> bool:
        """The loss is a user's function."""
        return self.loss != AUTO and self.loss not in _LOSSES

    @property
    def on_pairs(self) -> bool:
        """The task predicts pairs of vertices."""
        return self.name in TASKS and TASKS[self.name].on_pairs

    @property
    def own_fields(self) -> frozenset[str]:
        """Names of the fields that are options of the task, if the task was named."""
        return frozenset(option_fields(TaskConfig)).intersection(TASKS[self.name].options if self.name in TASKS else ())

    def message_graph(self, dataset: Dataset) -> str | None:
        """Key of the graph without the links that the task reads; None for a task on vertices.

        Also None if the links are unknown before the shards are: if there are none, or links of several graphs.
        """
        found = dataset.message_graphs(self.links) if self.on_pairs else []
        return found[0] if len(found) == 1 else None

    def own_options(self, task: Task) -> dict[str, Any]:
        """The options of the task by name."""
        return TASK_OPTIONS.values(self, task.options)

    def output_width(self, task: Task, sizes: LabelSizes) -> int:
        """Width of the model's output for a task; 0 if there is nothing to train."""
        return self.output_dim if task.on_pairs else task.width(sizes)

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
        """The task for some data; checks that the task and the class weights fit the data.

        Args:
            arrays: arrays of the vertex data.
            where: place of the arrays, for messages.

        Raises:
            InputError: the array that the task predicts is missing, the number of classes differs, or the task has no
                classes.
        """
        task = task_of_data(self.name, arrays, where)
        # Data without labels are refused where they are read.
        if self.class_weights == NO_WEIGHTS or (not task.on_pairs and task.array not in arrays):
            return task
        given, num_classes = self.given_class_weights, task.width(sizes)
        if task.refused_weights is None:
            refused = f"task {task.name} has no classes to weigh; remove the option"
        else:
            refused = task.refused_weights(self.is_own_loss)
        if not refused and given and len(given) != num_classes:
            refused = f"{counted(len(given), 'weight')}, but the dataset has {counted(num_classes, 'class')}"
        if refused:
            raise InputError(f"class_weights {self.class_weights!r}: {refused}")
        return task
