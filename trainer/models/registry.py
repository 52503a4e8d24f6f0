"""Models by name, built from the configuration of a run."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from gnnloom.storage.errors import InputError
from gnnloom.trainer.kernels.dropout import Dropout
from gnnloom.trainer.models.base import Model, ModelOptions
from gnnloom.trainer.models.gat import GAT
from gnnloom.trainer.models.gcn import GCN
from gnnloom.trainer.models.gin import GIN
from gnnloom.trainer.models.sage import GraphSAGE

if TYPE_CHECKING:
    from gnnloom.storage.grid_shards import GridShards
    from gnnloom.storage.row_shards import RowShards
    from gnnloom.trainer.config import TrainConfig
    from gnnloom.trainer.kernels.threads import Threads
    from gnnloom.trainer.operators.base import Operator

MODELS: dict[str, type[GCN | GraphSAGE | GIN | GAT]] = {"gcn": GCN, "sage": GraphSAGE, "gin": GIN, "gat": GAT}
#: Models made of nothing but the two products of an operator, and so of every algorithm.
_ON_EVERY_ALGORITHM = ("gcn", "sage")


def settled_normalisation(model: str, normalisation: str) -> str:
    """The normalisation of the adjacency that a model is to use; ``auto`` is its usual one.

    Raises:
        InputError: the model is not defined for it.
    """
    allowed = MODELS[model].normalisations
    if normalisation not in ("auto", *allowed):
        raise InputError(f"normalisation {normalisation!r}: model {model} is defined for {', '.join(allowed)}")
    return allowed[0] if normalisation == "auto" else normalisation


def check_options(config: TrainConfig) -> None:
    """Check that the options of a configuration make a model.

    Raises:
        InputError: they do not.
    """
    if config.algorithm != "p2p" and config.model not in _ON_EVERY_ALGORITHM:
        raise InputError(f"algorithm {config.algorithm!r}: model {config.model} runs on p2p")
    uneven = [width for width in config.hidden if width % config.heads]
    if config.model == "gat" and uneven:
        raise InputError(f"heads {config.heads}: do not divide the hidden width {uneven[0]}, which they share")
    if config.residual and not any(before == after for before, after in pairwise(config.hidden)):
        raise InputError(f"residual: hidden {config.hidden} has no two widths in a row that are equal")
    if config.unit_embedding and not config.hidden:
        raise InputError("unit_embedding: a model without hidden layers has no embedding")


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


def check_layouts(config: TrainConfig, operator: Operator) -> None:
    """Check that a model that adds a layer's input to its output has both rows on the same ranks.

    Raises:
        InputError: it has not.
    """
    layouts = [operator.layout(layer) for layer in range(len(config.hidden) + 2)]
    adds = config.residual or MODELS[config.model].needs_features
    if adds and any(layout is not layouts[0] for layout in layouts):
        what = "residual" if config.residual else f"model {config.model}"
        raise InputError(
            f"{what}: needs the rows of all layers in one order, which algorithm {config.algorithm} turns from layer to"
            " layer here; choose p2p, or grid shards with permutation none or single (not for tensor3d)"
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
