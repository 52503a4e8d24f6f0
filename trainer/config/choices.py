"""What the options of a training may be: plain facts, for those who must know them without loading torch."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from gnnloom.storage.errors import InputError

if TYPE_CHECKING:
    from gnnloom.trainer.config.train_config import TrainConfig

#: Models, and the normalizations of the adjacency that each is defined for, its usual one first.
MODEL_NORMALISATIONS = {"gcn": ("symmetric", "mean", "none"), "sage": ("mean",), "gin": ("none",), "gat": ("none",)}
#: Models made of nothing but the two products of an operator, and so of every algorithm.
_ON_EVERY_ALGORITHM = ("gcn", "sage")

FEATURE_NORMS = ("auto", "row", "none")
NORMS = ("none", "layer", "batch")
PRODUCT_ORDERS = ("auto", "propagate-first", "transform-first")
#: How the gradient of a weight is formed of features H and a gradient dQ.
GRADIENT_PRODUCTS = ("straight", "turned", "measured")


def settled_normalization(model: str, normalization: str) -> str:
    """The normalization of the adjacency that a model is to use; ``auto`` is its usual one.

    Raises:
        InputError: the model is not defined for it.
    """
    allowed = MODEL_NORMALISATIONS[model]
    if normalization not in ("auto", *allowed):
        raise InputError(f"normalization {normalization!r}: model {model} is defined for {', '.join(allowed)}")
    return allowed[0] if normalization == "auto" else normalization


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
