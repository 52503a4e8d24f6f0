"""Options that modes share, and those of the samplers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gnnloom.storage.option import Option
from gnnloom.storage.sampling.kinds import SAMPLERS

BATCH_SIZE: Final = Option(
    default=1024, help="Vertices of a batch; a sampler counts a vertex that it draws twice as two", least=1
)
#: The number of counted batches that stands for as many as are sufficient.
AUTO: Final = -1
#: Options of a mode that prepares batches ahead of their use.
AHEAD: Final[Mapping[str, Option]] = MappingProxyType(
    {
        "sampler_threads": Option(
            default=1, help="Threads of each rank that prepare batches ahead; 0: none", least=0, most=4096
        ),
        "pool": Option(default=4, help="Batches of each rank that are prepared ahead, at most", least=1),
    }
)

#: Samplers of subgraphs by name, with the parameters that are options: option to argument.
SAMPLER_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "frontier": {"frontier": "frontier", "enlargement": "enlargement", "degree_cap": "degree_cap"},
        "vertex": {},
        "edge": {},
        "walk": {"walk_length": "length"},
        "cluster": {"parts_per_batch": "parts_per_batch", "cluster_parts": "", "cluster_key": ""},
    }
)

#: Options of the samplers of subgraphs.
SUBGRAPHS: Final[Mapping[str, Option]] = MappingProxyType(
    {
        "sampler": Option(
            default="frontier",
            help="Sampler of subgraphs: " + "; ".join(f"{name}: {SAMPLERS[name].help}" for name in SAMPLER_OPTIONS),
            choices=tuple(SAMPLER_OPTIONS),
        ),
        "frontier": Option(
            default=0, help="Vertices in the frontier; 0: 1000, or an eighth of the batch if that is less", least=0
        ),
        "enlargement": Option(
            default=3.0, help="Slots of the frontier's table per slot in use, after it is compacted", below=math.inf
        ),
        "degree_cap": Option(default=0, help="Degree that larger ones count as in the frontier; 0: none", least=0),
        "walk_length": Option(default=4, help="Steps of a walk after its root", least=1),
        "cluster_parts": Option(
            default=0, help="Number of parts of the partition whose parts are clusters; 0: the only partition", least=0
        ),
        "cluster_key": Option(default="", help="Key of that partition, if there are several"),
        "parts_per_batch": Option(default=1, help="Clusters in a batch", least=1),
    }
)
