"""Predicts the memory of layers whose operations overwrite tensors that are no longer needed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnloom.trainer.algorithms.footprint import Footprint
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.open_shards import ROW_SHARDS
from gnnloom.trainer.models.work import ModelWork
from gnnloom.trainer.networks.options import ModelOptions

#: Scores, what the loss makes of them, and the gradients of both.
_SCORES = 4


def reuses_memory(config: TrainConfig) -> bool:
    """Whether hidden layers are overwritten: bias and ReLU in place, and gradients where features were.

    That holds for models of one product and one activation in each layer, on whole rows.
    """
    drops_input = config.input_dropout and config.dropout > 0
    plain = config.norm == "none" and not (config.residual or config.unit_embedding or drops_input)
    whole = config.chosen_algorithm.reads is ROW_SHARDS and config.mode == "full"
    return whole and plain and config.model_kind.work == ModelWork()


def reused_peak(
    config: TrainConfig, options: ModelOptions, layers: Sequence[Footprint], column: float
) -> tuple[float, float]:
    """Bytes at the worst moment of an epoch, and those saved for the backward pass at its start.

    Backward, the gradient of every matrix takes the place of one that was saved, so the worst moment is forward.

    Args:
        column: bytes of one column of a whole dense matrix.
    """
    # Sums of several products are float32, and then rounded.
    sums = 3 if config.precision == "bf16" and config.ranks > 1 else 1
    # Which features a layer lets through is one bit each.
    with_mask = 1 + 1 / (8 * config.feature_bytes)
    saved = peak = given = 0.0
    for layer, (before, after) in enumerate(options.pairs):
        here, output = layers[layer], layers[layer + 1].held * column * after
        first, is_last = options.propagates_first(layer), layer == len(options.pairs) - 1
        width = (before if first else after) * column
        product = here.product * width
        if layer > 0 or not options.input_is_kept:
            moving = (here.received + (0.0 if first else here.held)) * width
            peak = max(peak, saved + moving + sums * product)
        if layer > 0 and first:
            # The product is saved instead of the layer's input.
            saved += product - (0.0 if is_last else given)
        peak = max(peak, saved + output)
        if is_last:
            # Scores are as wide as sums.
            output *= np.dtype(config.dtype).itemsize / config.feature_bytes
            peak, output = max(peak, saved + _SCORES * output), 2 * output
        given = output
        saved += output * with_mask
    return peak, saved
