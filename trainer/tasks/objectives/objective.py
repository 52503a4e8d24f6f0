"""The contract of a task's class: reading labels, losses, metrics and predictions.

Scores are the model's output, a matrix that a layout spreads over the ranks. The labels have one row for each row of
the scores, as :class:`~gnnloom.trainer.data.vertex_data.Labels`, or are other objects, such as pairs: only the task's
own methods look inside.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar

from torch import Tensor, nn

from gnnloom.storage.artifacts.links import Links
from gnnloom.storage.catalog import Dataset
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.open_shards import VertexRows
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.layout.redistribute import whole_rows
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.objectives.own_functions import OwnFunction
from gnnloom.trainer.tasks.task import Task

if TYPE_CHECKING:
    from gnnloom.trainer.data.open_shards import RunData

#: Input of the losses and metrics of a task: labels of rows, or pairs.
Known = TypeVar("Known")
#: Name in the model of a module that a task trains in addition to the layers. The module gets whole rows, each on one
#: rank.
TASK_MODULE: Final = "decoder"
#: From (num_rows, columns held) scores to the metrics of all ranks, in the order of the task's ``figures``; None for a
#: split without a known label. Collective.
Metrics = Callable[[Tensor], dict[str, float | None]]


class StepLoss(Protocol):
    """Loss that a step minimizes.

    Attributes:
        num_examples: number of vertices or pairs of all ranks over which the loss is a mean.
        num_terms: number of terms of the sum over all ranks, or the sum of their weights, which divides it.
    """

    num_examples: int
    num_terms: float

    def __call__(self, scores: Tensor) -> Tensor:
        """This rank's contribution, () float64; the sum of all ranks' contributions is the loss. Collective."""
        ...


@dataclass(frozen=True, kw_only=True)
class TaskContext:
    """Data and functions that a task's class may use on one rank.

    Attributes:
        width: width of the model's output.
        links: the pairs of a task on pairs; None for a task on vertices.
        options: the task's own options by name, checked.
        loss: as given with ``--loss``.
        seed: seed of the run.
        steps_on_graph: steps multiply by the whole graph, and not by batches.
        counter: counts the bytes that the rank reads.
    """

    rank: int
    num_ranks: int
    dataset: Dataset
    shards: RunData
    width: int
    links: Links | None
    options: Mapping[str, Any]
    loss: str
    seed: int
    steps_on_graph: bool
    counter: ReadCounter


@dataclass(frozen=True)
class Objective(ABC, Generic[Known]):
    """Loss, metrics and predictions of a training run; the same on every rank.

    Attributes:
        num_outputs: width of the model's output.
        class_weights: (num_outputs,) float64 weights of the classes in the loss; None for equal weights.
        own_loss: the user's loss, which replaces the task's loss.
        options: the task's own options by name, checked.
    """

    task: Task
    num_outputs: int
    class_weights: Tensor | None = None
    own_loss: OwnFunction | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, task: Task, context: TaskContext) -> Self:
        """The task on this rank. Communicates nothing.

        Raises:
            InputError, NotFoundError: input of the task is missing.
        """
        return cls(task, context.width, options=context.options)

    def attached(self, model: nn.Module, operator: Operator) -> Self:  # noqa: ARG002 - for subclasses
        """The task with a model, to which it adds its own trained modules. Communicates nothing."""
        return self

    @property
    def notes(self) -> dict[str, str]:
        """Notes on figures for readers, by their names in metrics; none by default."""
        return {}

    @abstractmethod
    def read(self, rows: VertexRows, place: Place) -> Any:
        """Read the labels and the split, for :meth:`placed`. Communicates nothing.

        Args:
            rows: the vertex data of this rank's rows of the scores.

        Raises:
            InputError: an array is missing, or has values that the task cannot use.
        """

    def placed(self, read: Any, operator: Operator) -> Known:  # noqa: ARG002 - for subclasses
        """Labels moved to the ranks that own their rows. Collective.

        Args:
            read: as :meth:`read` returns it.
        """
        found: Known = read
        return found

    def steps(self, loss: StepLoss, labels: Known, operator: Operator, epoch: int) -> Iterator[StepLoss]:  # noqa: ARG002 - as above
        """The losses of the steps of an epoch on the whole graph; each is used before the next one. Collective.

        Args:
            loss: loss over all training vertices or pairs.
            labels: as :meth:`placed` returns them.
            operator: operator of the products of a step.
        """
        yield loss

    @property
    def num_steps(self) -> int:
        """Number of steps of an epoch on the whole graph."""
        return 1

    @abstractmethod
    def loss(self, layout: Layout, labels: Known, split: str = "train") -> StepLoss:
        """The loss over all vertices or pairs of a split. Collective.

        Args:
            layout: layout of the scores.
        """

    @abstractmethod
    def metrics(self, layout: Layout, labels: Known) -> Metrics:
        """Metrics for scores of a layout. Collective."""

    def details(self, layout: Layout, labels: Known, scores: Tensor) -> dict[str, Any]:  # noqa: ARG002 - for subclasses
        """More figures of the test split, as JSON for the run's result and its report; empty by default. Collective."""
        return {}

    @abstractmethod
    def predict(self, layout: Layout, scores: Tensor) -> dict[str, Tensor]:
        """The arrays that the task's ``predicts`` names, whole rows of this rank. Collective."""

    def whole(self, layout: Layout, scores: Tensor) -> Tensor:
        """(num_rows, num_outputs) whole rows of scores. Collective."""
        return whole_rows(scores, layout, self.num_outputs, Kind.PREDICTION)
