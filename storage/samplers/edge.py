"""``edge``: both ends of edges; edges of vertices with few edges are drawn more often."""

from __future__ import annotations

from gnnloom.storage.samplers.kind import SamplerKind

SAMPLER = SamplerKind(
    name="edge",
    order=2,
    help="both ends of edges; edges of vertices with few edges are drawn more often",
    source="Zeng et al., ICLR 2020, section 3.4",
    covers_epoch=False,
    place=("gnnloom.storage.sampling.edge", "EdgeSampler"),
)
