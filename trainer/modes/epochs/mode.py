"""Interface between the training loop and modes, the base of sampling modes, and ``full``: one step per epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.catalog import Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.data.open_shards import VertexRows
from gnnloom.trainer.feed.feature_view import FeatureView
from gnnloom.trainer.layout.partial_parameters import PartialParameter
from gnnloom.trainer.models.networks.model import Inputs, Model
from gnnloom.trainer.modes.epochs.model_inputs import ModelInputs
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.passes.evaluation import Source
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.objectives.objective import Objective, StepLoss
from gnnloom.trainer.tasks.objectives.vertex_objective import VertexObjective

if TYPE_CHECKING:
    from gnnloom.trainer.data.open_shards import RunData

    # A job on the whole graph need not load it.
    from gnnloom.trainer.feed.batches import Batches

Made = TypeVar("Made")


class Feed:
    """Opens the batches of a mode and their features, and evaluates from disk; the forecast of memory states both."""

    def open(self, opened: Callable[[], tuple[Batches[Made], FeatureView]]) -> tuple[Batches[Made], FeatureView]:
        """The maker of a mode's batches and the view of their features, from a function that opens both. Collective."""
        return opened()

    def scores(self, computed: Callable[[], Tensor]) -> Tensor:
        """The scores of an evaluation that reads features from disk; see :meth:`Mode.scores`. Collective."""
        return computed()


@dataclass(frozen=True, kw_only=True)
class ModeContext:
    """Data and functions that a mode may use on one rank.

    Attributes:
        options: the mode's own options by name, with its sampler's options, checked.
        seed: seed of the run.
        epochs: number of epochs of this process, unless training ends early.
        normalization: normalization of the adjacency; see :mod:`gnnloom.trainer.data.adjacency_scaling`.
        model_name: as given with ``--model``.
        shards: of the whole graph; ``label_rows`` are the rows of the output that this rank has.
        objective: for losses of batches.
        operator, model: on the whole graph; the loop evaluates with them.
        inputs: the input features of this rank's rows, in the first layer's layout, as the loop evaluates with them.
        given: inputs of the model, already taken; samples and rows on disk are read through it.
        labels: labels and split of this rank's rows of the output, or pairs, as the objective has placed them.
        loss: the loss over all training vertices, or pairs.
        counter: counts the bytes that this rank reads.
        source: what an evaluation from disk reads.
        measured: (num_measured,) int64 rows of the output whose scores metrics read, ascending; None for all.
        feed: opens the batches of the mode.
    """

    options: Mapping[str, Any]
    seed: int
    epochs: range
    normalization: str
    model_name: str
    dataset: Dataset
    shards: RunData
    label_rows: VertexRows
    objective: Objective[Any]
    operator: Operator
    model: Model
    inputs: Inputs
    given: ModelInputs
    labels: Any
    loss: StepLoss
    counter: ReadCounter
    source: Source
    measured: Tensor | None = None
    feed: Feed = field(default_factory=Feed)

    @property
    def learned(self) -> PartialParameter | None:
        """The input features of this rank's rows, if they are learned; every step sets their ``row_gradient``."""
        value = self.inputs.value
        return value if isinstance(value, PartialParameter) else None

    @property
    def feature_norm(self) -> str:
        """Scaling of the features: ``row`` or ``none``."""
        return self.given.norm

    @property
    def comm(self) -> Communicator:
        """All ranks of the run."""
        return self.operator.grid.comm

    @property
    def place(self) -> Place:
        return self.operator.grid.place

    @property
    def vertex_objective(self) -> VertexObjective:
        """The objective of a task on vertices.

        Raises:
            InputError: the task is on pairs.
        """
        if not isinstance(self.objective, VertexObjective):
            raise InputError(f"task {self.objective.task.name}: this mode trains tasks on vertices only; use mode full")
        return self.objective


class Mode(ABC):
    """Turns an epoch into updates of the parameters.

    The loop around it is the same for all modes: evaluation on the whole graph, learning rates, checkpoints, metrics
    and early stopping. Between epochs, a mode keeps only state that its random streams, keyed by the seed, epoch and
        batch, can reproduce: a run that is resumed after any epoch has the same losses.
    """

    def __init__(self, context: ModeContext) -> None:
        """Prepare. Collective."""
        self.context = context
        #: Describes how the last evaluation was computed, if from disk.
        self.evaluation: Mapping[str, Any] | None = None
        #: Bytes of the features on disk that batches of this rank have used so far; 0 if features are not on disk.
        self.bytes_used = 0

    @abstractmethod
    def train_epoch(self, epoch: int, update: Callable[[], None]) -> float:
        """Train one epoch, with the model in training mode. Collective.

        Args:
            update: sums the gradients of the parameters over all ranks, limits them, and steps. Collective.

        Returns:
            This rank's contribution to the loss of the epoch; the sum of all ranks' contributions is the loss.
        """

    def scores(self) -> Tensor:
        """(num_rows, columns held) exact scores with the current parameters on the whole graph. Collective.

        Only rows in the context's ``measured`` get scores, unless it is None.

        Called without gradients, with the model in evaluation mode.
        """
        return self.context.model.whole_scores(self.context.inputs)

    def close(self) -> None:  # noqa: B027 - most modes have nothing to free
        """Free resources that a process must not leave behind, such as threads; called once, also after an error."""


class FullMode(Mode):
    """Every step multiplies by the whole graph, as the algorithm distributes it; most tasks take one step per epoch."""

    def train_epoch(self, epoch: int, update: Callable[[], None]) -> float:
        context, model, objective = self.context, self.context.model, self.context.objective
        contributions, terms = list[float](), list[float]()
        for step, loss in enumerate(objective.steps(context.loss, context.labels, context.operator, epoch)):
            # Every step has its own dropout masks.
            model.epoch = epoch * objective.num_steps + step
            model.zero_grad()
            contribution = loss(model(self.context.inputs))
            contribution.backward()  # type: ignore[no-untyped-call]
            update()
            contributions.append(float(contribution.detach()))
            terms.append(loss.num_terms)
        if len(contributions) == 1:
            return contributions[0]
        whole = sum(each * number for each, number in zip(contributions, terms, strict=True))
        # If classes have weight 0, and in a forecast of memory, there are no terms.
        return whole / sum(terms) if any(terms) else 0.0


def form_gradients(
    model: Model,
    features: FeatureView,
    vertices: NDArray[np.int64],
    ahead: Tensor,
    operator: Operator,
    loss: StepLoss,
    *,
    shrinks: bool = False,
) -> float:
    """Form the gradients of a batch, for all modes with batches; returns this rank's contribution to the loss.

    Collective among the ranks of the operator.

    Args:
        vertices, ahead: vertices and rows of the batch; see :meth:`FeatureView.in_step`.
        operator: multiplies by the batch's matrix.
        shrinks: a layer's output has far fewer rows than its input.
    """
    model.zero_grad()
    feature = features.in_step(vertices, ahead)
    # The product with the weight is then cheaper after the product with the block.
    order = "propagate-first" if shrinks and model.options.product_order == "auto" else model.options.product_order
    with model.multiplying_by(operator, product_order=order):
        contribution = loss(model(Inputs(feature)))
    contribution.backward()  # type: ignore[no-untyped-call]
    features.give_back(vertices, feature)
    return float(contribution.detach())
