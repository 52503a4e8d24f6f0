"""Models by name, built from the configuration of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from gnnloom.storage.errors import InputError
from gnnloom.trainer.kernels.dispatch import Dropout
from gnnloom.trainer.models.gat import GAT
from gnnloom.trainer.models.gcn import GCN
from gnnloom.trainer.models.gin import GIN
from gnnloom.trainer.models.model import Model, ModelOptions
from gnnloom.trainer.models.sage import GraphSAGE

if TYPE_CHECKING:
    from gnnloom.storage.artifacts.grid_shards import GridShards
    from gnnloom.storage.artifacts.row_shards import RowShards
    from gnnloom.trainer.config.train_config import TrainConfig
    from gnnloom.trainer.kernels.threads import Threads
    from gnnloom.trainer.operators.operator import Operator

MODELS: dict[str, type[GCN | GraphSAGE | GIN | GAT]] = {"gcn": GCN, "sage": GraphSAGE, "gin": GIN, "gat": GAT}


def check_graph(model: str, shards: RowShards | GridShards) -> None:
    """Check that a model is defined for a graph.

    Raises:
        InputError: it is not.
    """
    if shards.weighted and not MODELS[model].takes_weights:
        able = ", ".join(name for name, kind in MODELS.items() if kind.takes_weights)
        raise InputError(
            f"{shards.artifact.path}: the edges have weights, which model {model} does not use; choose {able}, or"
            " ingest the graph without them"
        )


def model_options(config: TrainConfig, num_features: int, num_classes: int) -> ModelOptions:
    """What decides the model of a configuration besides its weights."""
    return ModelOptions(
        dims=(num_features, *config.hidden, num_classes),
        bias=config.bias,
        input_dropout=config.input_dropout,
        product_order=config.product_order,
        input_needs_gradient=config.input_has_gradient,
        input_is_kept=config.input_is_cached,
        norm=config.norm,
        residual=config.residual,
        unit_embedding=config.unit_embedding,
        heads=config.heads,
        negative_slope=config.negative_slope,
    )


def build_model(operator: Operator, config: TrainConfig, options: ModelOptions, threads: Threads) -> Model:
    """The model of ``config.model``, its weights drawn from ``config.seed``: the same on every rank."""
    dropout = Dropout(config.dropout, config.seed, threads)
    return MODELS[config.model](operator, options, dropout, config.seed, getattr(torch, config.dtype))
