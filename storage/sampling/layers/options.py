"""The options of sampled neighbors, for training, stored samples and the loader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from gnnloom.storage.errors import InputError
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.neighbor_samplers.registry import NEIGHBOR_SAMPLERS
from gnnloom.storage.option import Option
from gnnloom.storage.wording import counted, did_you_mean

#: Fan-out of every layer if none is given, and the layers if there is no model.
FANOUT: Final = 10
_LAYERS: Final = 3
#: The options of sampled neighbors by name.
NEIGHBOR_OPTIONS: Final[Mapping[str, Option]] = MappingProxyType(
    {
        "fanout": Option(
            default=(),
            help=f"Neighbors to draw per vertex, from the last layer to the first, such as 15,10,5; {ALL} for all;"
            f" by default {FANOUT} in every layer; in a graph with types, from each relation (but see --fanout-total)",
            least=1,
            also=(ALL,),
            example="15,10,5",
            metavar="FAN-OUTS",
        ),
        "batch_size": Option(
            default=1024, help="Vertices per batch; a vertex that a sampler draws twice counts twice", least=1
        ),
        "neighbor_sampler": Option(
            default="uniform",
            help="How to draw neighbors: "
            + "; ".join(f"{name}: {kind.help}" for name, kind in NEIGHBOR_SAMPLERS.items()),
            choices=tuple(NEIGHBOR_SAMPLERS),
        ),
        "replace": Option(default=False, help="Draw neighbors with replacement"),
        "draw_once": Option(
            default=False,
            help="Sample each vertex's neighbors once, in the first layer that contains it (as PyG does), not again in"
            " every layer",
        ),
        "cache_memory": Option(
            default=256 << 20,
            help="Memory per rank for the most frequent feature rows of other ranks, such as 512M; with --inputs disk,"
            " of all vertices, and for reading ahead",
            least=0,
            is_size=True,
        ),
    }
)
#: Fan-outs of single relations, fan-outs in total, and the reverses of relations, in a graph with types.
RELATION_FANOUT: Final = Option(
    default=(),
    kind=tuple[str, ...],
    help="In a graph with types, fan-outs of some relations, such as NAME=10:5,...; other relations use --fanout; 0"
    " omits a relation",
    metavar="NAME=NUMBERS",
)
FANOUT_TOTAL: Final = Option(
    default=False,
    help="In a graph with types, draw --fanout neighbors of each vertex from all relations together, that is, from the"
    " union of its edges, as DGL does in a graph made homogeneous; by default from each relation, as PyG's"
    " NeighborLoader and DGL's NeighborSampler do. Relations in --relation-fanout are drawn separately",
)
REVERSE: Final = Option(
    default=False,
    help="In a graph with types, also sample each relation in the reverse direction, as rev_NAME; reverses are stored"
    " in the dataset on first use",
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


def relation_fanouts(
    given: Sequence[str], hops: tuple[int, ...], relations: Sequence[str] | None
) -> dict[str, tuple[int, ...]]:
    """Fan-outs of each relation of a graph with types, for each hop from the seeds on.

    Args:
        given: ``NAME=NUMBERS`` for some relations: a number for each hop, separated by colons, or one for all hops.
        hops: fan-outs of all other relations.
        relations: names of the relations; None if they are not known yet, which leaves them unchecked.

    Raises:
        InputError: an item has another form, names no relation, or has another number of hops.
    """
    found = dict.fromkeys(relations or (), hops)
    for item in given:
        name, _, numbers = item.partition("=")
        try:
            own = tuple(int(each) for each in numbers.split(":"))
        except ValueError:
            own = ()
        if not name or not own or any(each < ALL for each in own):
            raise InputError(f"relation_fanout {item!r}: expected NAME=NUMBERS, such as cites=10:5, or {ALL} for all")
        if relations is not None and name not in relations:
            raise InputError(f"relation_fanout {item!r}: {did_you_mean(name, relations, 'there are')}")
        if relations is not None and len(own) not in {1, len(hops)}:
            raise InputError(
                f"relation_fanout {item!r}: {counted(len(own), 'hop')}, but other relations have {len(hops)}; give"
                " one number for each hop, or one for all hops"
            )
        found[name] = own * len(hops) if len(own) == 1 else own
    return found


def joint_relations(given: Sequence[str], relations: Iterable[str], *, total: bool) -> frozenset[str]:
    """Names of the relations that draw their fan-out together: with ``total``, all without a fan-out of their own.

    Args:
        given: as for :func:`relation_fanouts`.
    """
    own = {item.partition("=")[0] for item in given}
    return frozenset(name for name in relations if total and name not in own)
