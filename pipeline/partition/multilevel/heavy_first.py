"""Heavy-first random parts: balanced, without regard to the nets; a start for refinement."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.measure.balance import place_in_order
from gnnloom.pipeline.partition.model.random_moves import shuffled


def assign_heavy_first(weight: NDArray[np.int64], parts: int, seed: int, part: NDArray[np.int32]) -> NDArray[np.int64]:
    """Fill ``part``: the heaviest vertices first, equal ones in random order, each to the lightest part.

    Args:
        weight: (num_vertices,) int64.
        parts: number of parts P.
        part: (num_vertices,) int32, filled.

    Returns:
        (P,) int64 weight of each part.

    The longest-processing-time rule; see :func:`gnnloom.pipeline.partition.measure.balance.place_in_order`.
    """
    order = shuffled(len(weight), np.uint64(seed))
    # A stable sort of the shuffled vertices keeps equal weights in random order.
    order = order[np.argsort(-weight[order], kind="stable")]
    # Starting from equal loads, as ``place_in_order`` requires.
    load = np.zeros(parts, dtype=np.int64)
    place_in_order(order, weight, part, load)
    return load
