"""All ways to draw neighbors: gnnloom's, and the ways that installed packages announce."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import gnnloom.storage.neighbor_samplers
from gnnloom.storage.descriptors import load_descriptors
from gnnloom.storage.neighbor_samplers.kind import NeighborSamplerKind

#: All ways to draw neighbors by name, in the order of choices.
NEIGHBOR_SAMPLERS: Final[Mapping[str, NeighborSamplerKind]] = load_descriptors(
    gnnloom.storage.neighbor_samplers, "NEIGHBOR_SAMPLER", "gnnloom.neighbor_samplers", NeighborSamplerKind
)
