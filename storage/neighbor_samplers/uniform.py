"""``uniform``: every set of neighbors of one size is equally likely, whatever other vertices draw."""

from __future__ import annotations

from gnnloom.storage.neighbor_samplers.kind import NeighborSamplerKind

NEIGHBOR_SAMPLER = NeighborSamplerKind(
    name="uniform",
    order=0,
    help="at random, independently for each vertex",
    source="Hamilton, Ying, Leskovec, NeurIPS 2017, appendix A",
    place=("gnnloom.storage.sampling.layers.graph_view", "MatrixView"),
    replaces=True,
)
