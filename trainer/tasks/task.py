"""The descriptor of a task: what a training run predicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gnnloom.storage.descriptors import LazyClass
from gnnloom.storage.format.vertex_arrays import SPLIT
from gnnloom.storage.option import Option

#: Prefix of the metrics of a split, and its name in the vertex data.
PREFIXES = {"train": "train", "val": "valid", "test": "test"}
#: The same prefixes, and the split's code.
CODES = {prefix: SPLIT[split] for prefix, split in PREFIXES.items()}


class Arrays(Protocol):
    """Names of arrays, such as vertex data, shards and predictions have."""

    def __contains__(self, name: str, /) -> bool: ...


class LabelSizes(Protocol):
    """Sizes of the labels of a dataset, as vertex data, shards and samples state them; 0 for what they lack."""

    @property
    def num_classes(self) -> int: ...

    @property
    def num_targets(self) -> int: ...


@dataclass(frozen=True)
class Figure:
    """A figure that is reported of every split.

    Attributes:
        name: end of its names in metrics, such as ``accuracy`` of ``val_accuracy``.
        label: what reports call it.
        axis: label of an axis of its values, if that is another one.
        lower: lower is better.
        is_share: between 0 and 1; shown as a percentage.
        judges: the figure that stands for the task: reports show it, and ``auto`` means its value on the validation
            split. Without such a figure, the first one.
        prefixes: the splits that it is reported of.
    """

    name: str
    label: str = ""
    axis: str = ""
    lower: bool = False
    is_share: bool = False
    judges: bool = False
    prefixes: tuple[str, ...] = tuple(PREFIXES)

    @property
    def names(self) -> tuple[str, ...]:
        """Its names in metrics, in the order of the splits."""
        return tuple(f"{prefix}_{self.name}" for prefix in self.prefixes)


def judge_of(figures: Sequence[Figure]) -> Figure:
    """The figure that stands for others; see :class:`Figure`."""
    return max(figures, key=lambda figure: figure.judges)


@dataclass(frozen=True, kw_only=True)
class Task(LazyClass):
    """Task of a training run.

    Attributes:
        name: as given with ``--task``.
        order: position among the choices; equal ones are sorted by name.
        help: one line of help text.
        array: array of the vertex data with what is to be predicted, such as ``label``; the split is read too. Empty
            for a task on pairs.
        on_pairs: it predicts pairs of vertices, which are in the links of the graph. The model's output is a vector for
            every vertex, whose width is an option.
        value: kind of the values of the pairs that it predicts, ``class`` or ``number``; empty for the pairs
            themselves.
        usual_decoder: name of the decoder that ``auto`` stands for, of a task on pairs.
        automatic: ``auto`` chooses this task for data that have the array. Of several such tasks, it is the first one.
        place: module and class, a subclass of :class:`gnnloom.trainer.tasks.objectives.objective.Objective`. Named
            instead of imported: the class needs torch.
        width: width of the model's output, or of what is predicted for a pair; 0 if there is nothing to train.
        couples_columns: the loss of a row needs all of its scores, so ranks that hold some of its columns exchange a
            maximum, and then two sums.
        figures: what is reported of every split, in the order of the metrics.
        predicts: arrays over the vertices that a prediction writes, and their dimensions; the first one is the
            prediction itself.
        column: name of the prediction in exported tables.
        refused_weights: why classes cannot have weights in the loss, given whether the loss is the user's; empty if
            they can, and the objective's ``class_counts`` counts them. None for a task without classes.
        losses: names of the losses to choose from; the first one is the usual one. Empty for a task with one loss.
        options: the task's own options by name. Tasks that share a name share the option.
    """

    name: str
    order: int
    help: str
    array: str = ""
    on_pairs: bool = False
    value: str = ""
    usual_decoder: str = "dot"
    width: Callable[[LabelSizes], int]
    figures: tuple[Figure, ...]
    predicts: Mapping[str, tuple[str, ...]]
    column: str
    automatic: bool = False
    couples_columns: bool = False
    refused_weights: Callable[[bool], str] | None = None
    losses: tuple[str, ...] = ()
    options: Mapping[str, Option] = field(default_factory=dict)

    @property
    def arrays(self) -> tuple[str, ...]:
        """Arrays of the vertex data that it reads."""
        return () if self.on_pairs else (self.array, "split")

    @property
    def judge(self) -> Figure:
        """The figure that a run is judged by."""
        return judge_of(self.figures)

    @property
    def prediction(self) -> str:
        """Name of the array of the prediction."""
        return next(iter(self.predicts))
