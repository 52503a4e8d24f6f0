"""What the training loop requires of a mode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.vertex_data import Labels
from gnnloom.trainer.networks.model import Inputs, Model
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.objectives.masked_loss import MaskedLoss
from gnnloom.trainer.tasks.objectives.objective import Objective
from gnnloom.trainer.training.session import Session


@dataclass(frozen=True)
class ModeContext:
    """What a mode may use on one rank.

    Attributes:
        session: the shards, objective, operator and model; the loop evaluates with them.
        inputs: the input features of this rank's rows, in the first layer's layout, as the loop evaluates with them.
        labels: labels and split of this rank's rows of the output.
        loss: the loss over all training vertices.
        first_epoch: epoch at which this process begins.
    """

    session: Session
    inputs: Inputs
    labels: Labels
    loss: MaskedLoss
    first_epoch: int

    @property
    def comm(self) -> Communicator:
        return self.session.comm

    @property
    def place(self) -> Place:
        return self.session.place

    @property
    def objective(self) -> Objective:
        """For losses of batches."""
        return self.session.objective

    @property
    def config(self) -> TrainConfig:
        return self.session.config

    @property
    def model(self) -> Model:
        return self.session.model


class Mode(ABC):
    """How an epoch becomes updates of the parameters.

    The loop around it is the same for all modes: evaluation on the whole graph, learning rates, checkpoints, metrics
    and early stopping. A mode keeps no state from one epoch to the next that its random streams, which depend on the
    seed, epoch and batch, would not give again: a run that is resumed after any epoch has the same losses.
    """

    def __init__(self, context: ModeContext) -> None:
        """Prepare. Collective."""
        self.context = context

    @abstractmethod
    def train_epoch(self, epoch: int, update: Callable[[], None]) -> float:
        """Train one epoch, with the model in training mode. Collective.

        Args:
            update: sums the gradients of the parameters over all ranks, limits them, and steps. Collective.

        Returns:
            This rank's contribution to the loss of the epoch; the sum of all ranks' contributions is the loss.
        """

    def scores(self) -> Tensor:
        """(num_rows, columns held) scores of the present parameters on the whole graph, exactly. Collective.

        Called without gradients, with the model in evaluation mode.
        """
        scores: Tensor = self.context.model(self.context.inputs)
        return scores

    def close(self) -> None:  # noqa: B027 - most modes have nothing to free
        """Free what a process must not leave behind, such as threads; called once, also after an error."""
