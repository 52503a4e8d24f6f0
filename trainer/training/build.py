"""Builds what a configuration asks for: the model, and the weights of classes in the loss."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnloom.storage.errors import InputError
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.config.loss_config import BALANCED, NO_WEIGHTS, LossConfig
from gnnloom.trainer.config.model_config import ModelConfig
from gnnloom.trainer.data.vertex_data import Labels
from gnnloom.trainer.kernels.dispatch import Dropout
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.models.networks.model import Model
from gnnloom.trainer.models.networks.norm import share_batch_norms
from gnnloom.trainer.models.options import ModelOptions
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.place.global_generator import Draws, derived_seed, seeded
from gnnloom.trainer.tasks.objectives.objective import Objective


def build_model(operator: Operator, config: ModelConfig, seed: int, options: ModelOptions) -> Model:
    """The configured model, with weights from a seed, the same on every rank. Communicates nothing.

    Modules of torch, such as ``nn.Linear``, are created in the dtype of the run.
    """
    place = operator.grid.place
    dropout = Dropout(config.dropout, seed, place)
    # What a class draws outside `create_parameters`, in an `__init__` of its own.
    with place.creating_modules(), seeded(derived_seed(seed, Draws.CREATION)):
        model: Model = config.model_kind.load()(operator, options, dropout, seed)
    share_batch_norms(model, lambda: model.operator)
    return model


def check_class_weights(config: LossConfig, objective: Objective) -> None:
    """Check that the configured weights fit the task. Communicates nothing.

    Raises:
        InputError: there is another number of classes, or the task has none.
    """
    if config.class_weights == NO_WEIGHTS:
        return
    where = f"class_weights {config.class_weights!r}"
    refused = objective.refused_weights(own_loss=config.loss != "auto")
    if refused:
        raise InputError(f"{where}: {refused}")
    given = config.given_class_weights
    if given and len(given) != objective.num_outputs:
        raise InputError(f"{where}: {len(given)} weights, but the dataset has {objective.num_outputs} classes")


def class_weights(config: LossConfig, objective: Objective, layout: Layout, labels: Labels) -> Tensor | None:
    """(num_classes,) float64, the same on every rank; None for equal weights. Collective.

    ``balanced`` is the mean number of training vertices per class over the class's own number, as in scikit-learn.

    Args:
        layout: layout of the scores.
    """
    if config.class_weights == NO_WEIGHTS:
        return None
    if config.class_weights != BALANCED:
        return layout.place.tensor(config.given_class_weights, torch.float64)
    counts = layout.place.zeros((objective.num_outputs,), torch.int64)
    # The layout does not split labels, so one rank counts the rows that it shares with others.
    if layout.speaks_for_rows:
        counts += objective.class_counts(labels.label[objective.known(labels, "train")])
    layout.grid.comm.all_reduce(counts, Kind.SETUP)
    # A class without a training vertex is in no term of the loss.
    each = counts.to(torch.float64)
    return torch.where(counts > 0, each.sum() / (len(each) * each.clamp_min(1)), 0)
