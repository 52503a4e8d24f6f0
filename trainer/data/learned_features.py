"""Draws the initial random values of learned input features."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gnnloom.storage.matrix.random_numbers import stream_key
from gnnloom.trainer.kernels.dispatch import normal_rows
from gnnloom.trainer.place.place import Place


def first_features(
    vertices: NDArray[np.int64], columns: slice, width: int, seed: int, place: Place, of_type: str = ""
) -> Tensor:
    """The initial values of the learned features of some vertices. Communicates nothing.

    Normal, with the standard deviation ``1 / sqrt(width)``: rows have a length of about 1, for graphs of any size. Each
    number is a function of the seed, the vertex and the column, so it is the same on every layout, and in every
    precision before it is rounded.

    Args:
        vertices: (num_rows,) int64 global ids.
        columns: the wanted columns.
        width: number of all columns.
        of_type: type of the vertices, in a graph with types.

    Returns:
        (num_rows, number of columns) of the dtype of sums.
    """
    stream = f"learned features/{of_type}" if of_type else "learned features"
    rows = normal_rows(stream_key(seed, stream), vertices, columns, width, place)
    return rows.to(place.sum_dtype).mul_(1 / math.sqrt(width))
