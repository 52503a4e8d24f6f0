"""``frontier``: vertices popped from a frontier by degree, and their successors."""

from __future__ import annotations

import math

from gnnloom.storage.option import Option
from gnnloom.storage.samplers.kind import SamplerKind

SAMPLER = SamplerKind(
    name="frontier",
    order=0,
    help="vertices popped from a frontier by degree, and their successors",
    source="Zeng et al., IPDPS 2019, section IV",
    covers_epoch=False,
    place=("gnnloom.storage.sampling.frontier", "FrontierSampler"),
    options={
        "frontier": Option(
            default=0, help="Vertices in the frontier; 0: 1000, or an eighth of the batch if that is less", least=0
        ),
        "enlargement": Option(
            default=3.0,
            help="Size of the frontier's table after it is compacted, as a multiple of the slots in use",
            below=math.inf,
        ),
        "degree_cap": Option(
            default=0, help="Maximum degree in the frontier, to which larger degrees are reduced; 0: none", least=0
        ),
    },
)
