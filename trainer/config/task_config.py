"""Options for the task of a run: what it predicts, minimizes and measures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Group, Option, option_field, option_fields
from gnnloom.storage.wording import counted
from gnnloom.trainer.config.fields import Config, check_owner, option, other_values, own_values, shared_option
from gnnloom.trainer.links.decoders.registry import DECODERS
from gnnloom.trainer.tasks.open_links import open_links
from gnnloom.trainer.tasks.registry import AUTO, TASKS, task_of_data
from gnnloom.trainer.tasks.task import Arrays, LabelSizes, Task

#: Values of ``class_weights`` other than a list of numbers.
NO_WEIGHTS, BALANCED = "none", "balanced"


_option = partial(option, group=Group.TASK)
#: Losses that belong to a task.
_LOSSES = {loss: kind.name for kind in TASKS.values() for loss in kind.losses}


def _shown(name: str) -> Option:
    return shared_option(TASKS, "task", name, Group.TASK)


def _task_option(name: str) -> Any:
    # They decide the result of the tasks that have them, and nothing else.
    return option_field(_shown(name), free=True)


@dataclass(frozen=True, kw_only=True)
class TaskConfig(Config):
    """The task and its options, its loss, the weights of the classes in it, and a metric of the user's own.

    An option of another task is refused, as it would do nothing. The options of gnnloom's own tasks and decoders are
    fields. Options of other packages are ``task_options``, each as ``name=value``; they decide the result if there are
    any.
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
        for name in [*self.changed(), *self._other_values()]:
            check_owner(name, TASKS, "task", self.name)
            check_owner(name, DECODERS, "decoder", decoder)
        if self.loss in _LOSSES and self.loss not in (TASKS[self.name].losses if self.name in TASKS else ()):
            raise InputError(f"loss {self.loss!r}: a loss of task {_LOSSES[self.loss]}, not of task {self.name}")
        for name, is_own in (("loss", self.is_own_loss), ("metric", self.metric != "none")):
            if self.on_pairs and is_own:
                raise InputError(f"{name} {getattr(self, name)!r}: task {self.name} takes no function of your own")

    @property
    def is_own_loss(self) -> bool:
        """The loss is a function of the user's."""
        return self.loss != AUTO and self.loss not in _LOSSES

    @property
    def on_pairs(self) -> bool:
        """The task predicts pairs of vertices."""
        return self.name in TASKS and TASKS[self.name].on_pairs

    @property
    def own_fields(self) -> frozenset[str]:
        """Names of the fields that are options of the task, if it was named."""
        return frozenset(option_fields(TaskConfig)).intersection(TASKS[self.name].options if self.name in TASKS else ())

    def message_graph(self, dataset: Dataset) -> str | None:
        """Key of the graph without the links that the task reads; None for a task on vertices.

        Also None if the links are not known before the shards are: if there are none, or links of several graphs.
        """
        found = dataset.message_graphs(self.links) if self.on_pairs else []
        return found[0] if len(found) == 1 else None

    def links_of(self, dataset: Dataset, graph: str, where: Path) -> Links | None:
        """The links that the task reads, checked; None for a task on vertices.

        Args:
            graph: key of the graph that the run reads.
            where: folder of the shards, or of the graph, for errors.

        Raises:
            InputError, NotFoundError: there are none that fit, or several.
        """
        return open_links(TASKS[self.name], dataset, graph, self.links, where) if self.on_pairs else None

    def own_options(self, task: Task) -> dict[str, Any]:
        """The options of the task by name."""
        return own_values(self, task.options, self._other_values())

    def _other_values(self) -> dict[str, Any]:
        """Name to value of what ``task_options`` has."""
        return other_values("task_options", self.task_options, other_task_options())

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
        """The task for some data, which it and the weights of the classes must fit.

        Args:
            arrays: of the vertex data.
            where: place of the arrays, for messages.

        Raises:
            InputError: the array that the task predicts is missing, there is another number of classes, or the task
                has none.
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


def other_task_options() -> dict[str, Option]:
    """Options of tasks and decoders that are not fields of the configuration: they go into ``task_options``."""
    fields = option_fields(TaskConfig)
    names = {name: None for kind in TASKS.values() for name in kind.options if name not in fields}
    return {name: _shown(name) for name in names}
