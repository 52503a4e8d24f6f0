"""Options that modes share, and the options of the samplers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from gnnloom.storage.option import Option
from gnnloom.storage.samplers.registry import SAMPLERS
from gnnloom.storage.sampling.layers.options import NEIGHBOR_OPTIONS

BATCH_SIZE: Final = NEIGHBOR_OPTIONS["batch_size"]
#: Value of ``inputs``: no rank has all features of its vertices in memory.
ON_DISK: Final = "disk"
INPUTS: Final = Option(
    default="memory",
    help="Where to keep the input features during training; disk: in memory-mapped files, in mode full with their"
    " product with the adjacency; losses are bit-identical",
    choices=("memory", ON_DISK),
)
#: Value of ``presamples`` that stands for a sufficient number.
AUTO: Final = -1
#: Options of a mode that prepares batches ahead of their use.
AHEAD: Final[Mapping[str, Option]] = MappingProxyType(
    {
        "sampler_threads": Option(
            default=1, help="Threads of each rank that prepare batches ahead; 0: none", least=0, most=4096
        ),
        "pool": Option(default=4, help="Maximum number of batches that a rank prepares ahead", least=1),
    }
)

#: The choice of a sampler of subgraphs, and the options of each.
SUBGRAPHS: Final[Mapping[str, Option]] = MappingProxyType(
    {
        "sampler": Option(
            default="frontier",
            help="Sampler of subgraphs: " + "; ".join(f"{name}: {SAMPLERS[name].help}" for name in SAMPLERS),
            choices=tuple(SAMPLERS),
        ),
        **{name: option for each in SAMPLERS.values() for name, option in each.options.items()},
    }
)


def sampler_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the chosen sampler that are options, without arguments that have their default value."""
    kind = SAMPLERS[options["sampler"]]
    pairs = [(kind.arguments.get(name, name), options[name]) for name in kind.options]
    return {argument: value for argument, value in pairs if argument and value}
