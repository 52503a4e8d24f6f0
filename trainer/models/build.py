"""Builds the model of a descriptor, the same on every rank."""

from __future__ import annotations

from gnnloom.trainer.kernels.dispatch import Dropout
from gnnloom.trainer.models.kind import ModelKind
from gnnloom.trainer.models.networks.model import Model
from gnnloom.trainer.models.networks.norm import share_batch_norms
from gnnloom.trainer.models.options import ModelOptions
from gnnloom.trainer.operators.operator import Operator
from gnnloom.trainer.place.global_generator import Draws, derived_seed, seeded


def build_model(kind: ModelKind, operator: Operator, options: ModelOptions, dropout: float, seed: int) -> Model:
    """A model with weights from a seed, the same on every rank. Communicates nothing.

    torch modules, such as ``nn.Linear``, are created in the dtype of the run.

    Args:
        dropout: probability of dropping a feature between layers.
    """
    place = operator.grid.place
    # For draws of a class outside `create_parameters`, in its own `__init__`.
    with place.creating_modules(), seeded(derived_seed(seed, Draws.CREATION)):
        model: Model = kind.load()(operator, options, Dropout(dropout, seed, place), seed)
    share_batch_norms(model, lambda: model.operator)
    return model
