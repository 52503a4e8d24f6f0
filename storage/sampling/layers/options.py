"""The options of sampled neighbors, for training, stored samples and the loader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from gnnloom.storage.errors import InputError
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.neighbor_samplers.registry import NEIGHBOR_SAMPLERS
from gnnloom.storage.option import Option

#: Fan-out of every layer if none is given, and the layers if there is no model.
FANOUT: Final = 10
_LAYERS: Final = 3
#: The options of sampled neighbors by name.
NEIGHBOR_OPTIONS: Final[Mapping[str, Option]] = MappingProxyType(
    {
        "fanout": Option(
            default=(),
            help=f"Neighbors to draw for each vertex, from the last layer to the first, such as 15,10,5; {ALL} for all;"
            f" by default {FANOUT} in every layer",
            least=1,
            also=(ALL,),
            example="15,10,5",
            metavar="FAN-OUTS",
        ),
        "batch_size": Option(
            default=1024, help="Vertices of a batch; a sampler counts a vertex that it draws twice as two", least=1
        ),
        "neighbor_sampler": Option(
            default="uniform",
            help="How a vertex draws: " + "; ".join(f"{name}: {kind.help}" for name, kind in NEIGHBOR_SAMPLERS.items()),
            choices=tuple(NEIGHBOR_SAMPLERS),
        ),
        "replace": Option(default=False, help="Draw neighbors with replacement"),
        "draw_once": Option(
            default=False,
            help="Draw neighbors of a vertex once, in the first layer that has it, as PyG does; otherwise anew in every"
            " layer, as GraphSAGE's algorithm 2",
        ),
        "cache_memory": Option(
            default=256 << 20,
            help="Memory per rank for the most frequent feature rows of other ranks, or on disk, such as 512M; on disk,"
            " half of it is for the rows of batches that are drawn ahead and read together",
            least=0,
            is_size=True,
        ),
    }
)
#: The options that :class:`gnnloom.storage.sampling.neighbor.NeighborSampler` takes by their names.
SAMPLER_OPTIONS: Final = ("replace", "draw_once", "neighbor_sampler")
#: Fan-outs where there is no model that says how many layers there are.
FANOUTS: Final = replace(NEIGHBOR_OPTIONS["fanout"], default=(FANOUT,) * _LAYERS)


def check_neighbor_options(options: Mapping[str, Any]) -> None:
    """Check options of sampled neighbors that depend on each other.

    Raises:
        InputError: the chosen way to draw cannot draw with replacement.
    """
    kind = NEIGHBOR_SAMPLERS[options["neighbor_sampler"]]
    if options["replace"] and not kind.replaces:
        able = ", ".join(name for name, other in NEIGHBOR_SAMPLERS.items() if other.replaces)
        raise InputError(
            f"replace: neighbor sampler {kind.name} draws without replacement; choose {able}, or drop replace"
        )
