"""``neighbor``: some neighbors of each vertex, layer by layer, from seeds on."""

from __future__ import annotations

from gnnloom.storage.samplers.kind import SamplerKind

SAMPLER = SamplerKind(
    name="neighbor",
    order=5,
    help="some neighbors of each vertex, layer by layer, from seeds on",
    source="Hamilton, Ying, Leskovec, NeurIPS 2017, appendix A",
    covers_epoch=True,
    place=("gnnloom.storage.sampling.neighbor", "NeighborSampler"),
    layered=True,
)
