"""``walk``: vertices that random walks from uniform roots visit."""

from __future__ import annotations

from gnnloom.storage.option import Option
from gnnloom.storage.samplers.kind import SamplerKind

SAMPLER = SamplerKind(
    name="walk",
    order=3,
    help="vertices that random walks from uniform roots visit",
    source="Zeng et al., ICLR 2020, section 3.4",
    covers_epoch=False,
    place=("gnnloom.storage.sampling.walk", "WalkSampler"),
    options={"walk_length": Option(default=4, help="Steps of a walk after its root", least=1)},
    arguments={"walk_length": "length"},
)
