"""Models by name, built from the configuration of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from gnnloom.trainer.kernels.dropout import Dropout
from gnnloom.trainer.models.gcn import GCN, GCNOptions

if TYPE_CHECKING:
    from gnnloom.trainer.config import TrainConfig
    from gnnloom.trainer.kernels.threads import Threads
    from gnnloom.trainer.operators.base import Operator

MODELS = {"gcn": GCN}


def build_model(operator: Operator, config: TrainConfig, num_features: int, num_classes: int, threads: Threads) -> GCN:
    """The model of ``config.model``, its weights drawn from ``config.seed``: the same on every rank."""
    options = GCNOptions(
        dims=(num_features, *config.hidden, num_classes),
        bias=config.bias,
        input_dropout=config.input_dropout,
        product_order=config.product_order,
        input_needs_gradient=not config.skip_input_gradient,
    )
    dropout = Dropout(config.dropout, config.seed, threads)
    return MODELS[config.model](operator, options, dropout, config.seed, getattr(torch, config.dtype))
