"""``neighbor``: some neighbors of each vertex, layer by layer, from seeds on.

Hamilton, Ying, Leskovec (GraphSAGE, NeurIPS 2017), appendix A, algorithm 2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.artifacts.whole_graph import WholeGraph
from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.permutation import mix
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.sampling.layers.expansion import SampledRelation, draw_layers, drawn_view
from gnnloom.storage.sampling.layers.graph_view import Draw
from gnnloom.storage.sampling.sampler import Sample, Sampler


class NeighborSampler(Sampler):
    """Draws neighbors of the seeds of a batch, one layer per fan-out.

    A vertex gathers from the columns of its row. A self loop is a column like any other. Every vertex of a
    layer draws anew, also one that drew before in another layer; with ``draw_once`` it keeps what it drew first, so
    that one graph serves all layers, as in PyG. What a vertex draws depends on the batch, the layer and the vertex
    only, so a process that owns the vertex can draw for others, and what is drawn with ``draw_once`` is a part of
    what is drawn without it.

    Args:
        fanouts: neighbors to draw for each vertex, from the layer of the seeds on: ``ALL``, or 1 or more.
        replace: draw with replacement; a row then has ``fanout`` nonzeros even if the vertex has fewer neighbors.
        draw_once: a layer draws for the vertices that it is the first to have, instead of for all of its vertices.
        neighbor_sampler: how a vertex draws; see :data:`~gnnloom.storage.neighbor_samplers.registry.NEIGHBOR_SAMPLERS`.

    Raises:
        InputError: a fan-out is out of its range.
    """

    kind = "neighbor"

    def __init__(
        self,
        graph: WholeGraph,
        seed: int,
        fanouts: Sequence[int],
        *,
        replace: bool = False,
        draw_once: bool = False,
        neighbor_sampler: str = "uniform",
    ) -> None:
        super().__init__(graph, seed)
        if not fanouts or any(fanout != ALL and fanout < 1 for fanout in fanouts):
            raise InputError(f"fan-outs {list(fanouts)}: expected one per layer, each 1 or more, or {ALL} for all")
        self.fanouts, self.replace, self.draw_once = tuple(fanouts), replace, draw_once
        self._relation = SampledRelation(drawn_view(graph.matrix, neighbor_sampler), 0, 0)

    def sample_of(
        self, seeds: NDArray[np.int64], epoch: int, batch: int, excluded: NDArray[np.int64] | None = None
    ) -> Sample:
        """Draw neighbors of the seeds of a batch, as if the graph lacked some entries.

        Args:
            seeds: (num_seeds,) int64 vertices whose outputs are wanted, ascending.
            excluded: (num_excluded,) int64 positions of entries in the graph's matrix, ascending; see
                :meth:`excluded`. None for no entry.

        Raises:
            InputError: the seeds are not ascending vertices of the graph.
        """
        n = self.graph.num_vertices
        if not len(seeds) or seeds[0] < 0 or seeds[-1] >= n or not (seeds[1:] > seeds[:-1]).all():
            raise InputError(f"{len(seeds)} seeds: expected ascending vertices of a graph of {n:,}")
        key, hops = self._key(epoch, batch), range(len(self.fanouts))
        excluded = np.empty(0, np.int64) if excluded is None else excluded
        streams = [np.uint64(mix(key + np.uint64(hop + 1))) for hop in hops]
        draws = [(Draw(streams[hop], self.fanouts[hop], self.replace, excluded),) for hop in hops]
        layers = draw_layers([self._relation], [seeds], draws, draw_once=self.draw_once)
        return Sample(layers.vertices[0], tuple(blocks[0] for blocks in layers.blocks))

    def excluded(self, without: tuple[NDArray[np.int64], NDArray[np.int64]]) -> NDArray[np.int64]:
        """(num_excluded,) int64 positions of the entries to draw without, for :meth:`sample_of`.

        Args:
            without: rows and columns, (num_given,) int64 each.
        """
        return self._relation.view.positions(*without)
