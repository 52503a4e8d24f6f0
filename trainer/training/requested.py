"""Which model a configuration asks for, and of what shards. Imports no torch: planning needs it too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnloom.storage.artifacts.row_shards import RowShards
from gnnloom.storage.errors import InputError
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.models.options import ModelOptions
from gnnloom.trainer.models.registry import MODELS, model_kind

if TYPE_CHECKING:
    # It imports numba, which a job on row shards need not load.
    from gnnloom.storage.artifacts.grid_shards import GridShards


def check_graph(model: str, shards: RowShards | GridShards) -> None:
    """Check that a model is defined for a graph.

    Raises:
        InputError: the graph has weights, which the model would ignore.
    """
    if shards.weighted and not model_kind(model).takes_weights:
        able = ", ".join(name for name, kind in MODELS.items() if kind.takes_weights)
        raise InputError(
            f"{shards.artifact.path}: the edges have weights, which model {model} does not use; choose {able}, or"
            " ingest the graph without them"
        )


def model_options(config: TrainConfig, num_features: int, num_outputs: int) -> ModelOptions:
    """Everything that determines the model of a configuration except its weights."""
    return ModelOptions(
        dims=(num_features, *config.hidden, num_outputs),
        bias=config.bias,
        input_dropout=config.input_dropout,
        product_order=config.product_order,
        input_needs_gradient=config.input_has_gradient,
        input_is_kept=config.input_is_cached,
        norm=config.norm,
        residual=config.residual,
        unit_embedding=config.unit_embedding,
        own=config.own_model_options(),
    )
