"""Builds what a configuration asks for: the operator of its algorithm, and its model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from gnnloom.storage.artifacts.row_shards import RowShards
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.arrays import ReadCounter
from gnnloom.trainer.algorithms.algorithm import OperatorContext
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.open_shards import OpenedShards
from gnnloom.trainer.kernels.dispatch import Dropout, Threads, Workspace
from gnnloom.trainer.models.registry import MODELS, model_kind
from gnnloom.trainer.networks.model import Model, ModelOptions
from gnnloom.trainer.operators.operator import LayerPlan, Operator

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
        feature_dtype=getattr(torch, config.feature_dtype),
    )


def build_operator(
    comm: Communicator,
    shards: OpenedShards,
    config: TrainConfig,
    plan: LayerPlan,
    threads: Threads,
    counter: ReadCounter,
    workspace: Workspace,
) -> Operator:
    """The operator of the configured algorithm. Reads this rank's adjacency and communicates nothing."""
    algorithm = config.chosen_algorithm
    context = OperatorContext(
        comm=comm,
        axes=algorithm.settled_grid(config.grid, comm.size),
        shards=shards,
        normalization=config.normalization,
        dtype=np.dtype(config.dtype),
        feature_dtype=getattr(torch, config.feature_dtype),
        plan=plan,
        # Sampled training differentiates the products with its batches only.
        differentiates=config.model_kind.load().multiplies and not config.mode_kind.is_sampled,
        threads=threads,
        counter=counter,
        workspace=workspace,
        options=config.own_options(),
    )
    return algorithm.build(context)


def build_model(operator: Operator, config: TrainConfig, options: ModelOptions, threads: Threads) -> Model:
    """The configured model, with weights from ``config.seed``, the same on every rank. Communicates nothing."""
    dropout = Dropout(config.dropout, config.seed, threads, operator.workspace)
    return config.model_kind.load()(operator, options, dropout, config.seed, getattr(torch, config.dtype))
