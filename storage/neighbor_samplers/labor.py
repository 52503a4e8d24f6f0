"""``labor``: the neighbors with the least random numbers, which all vertices of a layer share."""

from __future__ import annotations

from gnnloom.storage.neighbor_samplers.kind import NeighborSamplerKind

NEIGHBOR_SAMPLER = NeighborSamplerKind(
    name="labor",
    order=1,
    help="with random numbers shared by the vertices of a layer, for fewer distinct vertices",
    source="Balin, Catalyurek, NeurIPS 2023, section 3",
    place=("gnnloom.storage.sampling.layers.labor", "LaborView"),
)
