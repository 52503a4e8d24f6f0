"""Draws the batches that a stochastic partition is made for, by the samplers that training uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.whole_graph import read_whole_graph
from gnnloom.storage.sampling.edge import EdgeSampler
from gnnloom.storage.sampling.frontier import FrontierSampler
from gnnloom.storage.sampling.vertex import VertexSampler
from gnnloom.storage.sampling.walk import WalkSampler

if TYPE_CHECKING:
    from gnnloom.storage.artifacts.graph import Graph

_SAMPLERS = {sampler.kind: sampler for sampler in (EdgeSampler, FrontierSampler, VertexSampler, WalkSampler)}


class BatchDrawer:
    """Draws batches of a graph. Holds its pattern in memory.

    Args:
        kind: one of :data:`gnnloom.storage.sampling.kinds.BATCHES`.
        rate: vertices to draw for a batch, repeats included, as a share of all.
        seed: batches with other seeds are independent.
    """

    def __init__(self, kind: str, graph: Graph, rate: float, seed: int) -> None:
        size = max(1, round(rate * graph.num_vertices))
        self._sampler = _SAMPLERS[kind](read_whole_graph(graph, pattern=True), seed, size)

    def draw(self, number: int) -> NDArray[np.bool_]:
        """Draw the batch with this number; batches with other numbers are independent.

        Returns:
            (num_vertices,) bool, true for the vertices in the batch.
        """
        chosen = np.zeros(self._sampler.graph.num_vertices, dtype=np.bool_)
        # The first batch of an epoch of its own: those of one epoch can be disjoint.
        chosen[self._sampler.draw(number, 0)] = True
        return chosen
