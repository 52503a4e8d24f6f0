"""All samplers of subgraphs: gnnloom's, and samplers that installed packages announce."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import gnnloom.storage.samplers
from gnnloom.storage.descriptors import load_descriptors
from gnnloom.storage.samplers.kind import SamplerKind

#: All samplers by name, in the order of choices.
SAMPLERS: Final[Mapping[str, SamplerKind]] = load_descriptors(
    gnnloom.storage.samplers, "SAMPLER", "gnnloom.samplers", SamplerKind
)
