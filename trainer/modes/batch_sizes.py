"""Sizes of a rank's share of a batch before anything is drawn, as modes state them for the forecast of memory.

Estimates from the sizes of the graph, for vertices drawn uniformly. Draws that prefer some vertices find fewer
different ones, so batches of sampled neighbors are at most as large, unless a fan-out is unlimited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RankRows:
    """The rows of one rank.

    Attributes:
        own, halo: vertices that it owns, and others that its rows refer to.
        num_vertices, nnz: of the whole graph; without the graph, estimated from the rank's rows.
        row_bytes: of the features of a vertex.
    """

    own: int
    halo: int
    num_vertices: int
    nnz: int
    row_bytes: int

    @property
    def mean_degree(self) -> float:
        return self.nnz / max(1, self.num_vertices)


@dataclass(frozen=True, kw_only=True)
class BatchSizes:
    """One rank's share of a batch, and what the mode has in memory beside the batches.

    Attributes:
        rows: of the input of every layer, and of the last layer's output.
        nonzeros: of every layer's block, or of the one matrix of all layers.
        is_layered: every layer has a block of its own.
        received: rows of other ranks that arrive for a product.
        has_features: batches that are prepared ahead have their input features.
        kept_bytes: bytes of what else the mode keeps.
        maps_features: the features of all vertices are mapped from disk, in addition to the graph.
        maps_graph: the graph is mapped from disk.
    """

    rows: Sequence[float]
    nonzeros: Sequence[float]
    is_layered: bool = False
    received: float = 0.0
    has_features: bool = False
    kept_bytes: float = 0.0
    maps_features: bool = False
    maps_graph: bool = True
