"""Draws the batches that a stochastic partition is made for, by the samplers that training uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.whole_graph import WholeGraph, read_whole_graph
from gnnloom.storage.sampling.kinds import SAMPLERS

if TYPE_CHECKING:
    from gnnloom.storage.artifacts.graph import Graph
    from gnnloom.storage.sampling.sampler import Sampler


class BatchDrawer:
    """Draws batches of a graph. Holds its pattern in memory.

    Args:
        kind: one of :data:`gnnloom.storage.sampling.kinds.BATCHES`.
        rate: vertices to draw for a batch, repeats included, as a share of all.
        seed: batches with other seeds are independent.
    """

    def __init__(self, kind: str, graph: Graph, rate: float, seed: int) -> None:
        size = max(1, round(rate * graph.num_vertices))
        # Samplers of these kinds take a graph, a seed and a size.
        make = cast("Callable[[WholeGraph, int, int], Sampler]", SAMPLERS[kind].load())
        self._sampler = make(read_whole_graph(graph, pattern=True), seed, size)

    def draw(self, number: int) -> NDArray[np.bool_]:
        """Draw the batch with this number; batches with other numbers are independent.

        Returns:
            (num_vertices,) bool, true for the vertices in the batch.
        """
        chosen = np.zeros(self._sampler.graph.num_vertices, dtype=np.bool_)
        # The first batch of an epoch of its own: those of one epoch can be disjoint.
        chosen[self._sampler.draw(number, 0)] = True
        return chosen
