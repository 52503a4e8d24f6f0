"""The options of the loader, by the kind of its batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from gnnloom.storage.errors import InputError
from gnnloom.storage.format.vertex_arrays import SPLIT
from gnnloom.storage.option import Option
from gnnloom.storage.sampling.layers.options import FANOUT_TOTAL, FANOUTS, NEIGHBOR_OPTIONS, REVERSE
from gnnloom.storage.wording import did_you_mean
from gnnloom.trainer.data.adjacency_scaling import NORMALIZATIONS
from gnnloom.trainer.loader.choices import ALL_VERTICES, FEATURES, STORED
from gnnloom.trainer.modes.options import BATCH_SIZE, SUBGRAPHS
from gnnloom.trainer.modes.subgraph import MODE
from gnnloom.trainer.tasks.options import NEGATIVES, PAIRS
from gnnloom.workflows.api.options.keywords import check_known, plain_values

#: The sampler of batches that have hops.
NEIGHBOR: Final = "neighbor"
#: Kinds of batches.
DRAWN, SUBGRAPH, OF_PAIRS, PACKED = "sampled neighbors", "subgraphs", "pairs", "stored samples"
TYPED: Final = "a graph with types"
TYPED_PAIRS: Final = "pairs of a relation"
TYPED_PACKED: Final = "stored samples of a graph with types"
#: Options of batches of every kind.
_COMMON: Final[Mapping[str, Option]] = MappingProxyType(
    {
        "epoch": Option(
            default=0, help="Epoch of the first iteration; each later iteration has the next epoch", least=0
        ),
        "rank": Option(
            default=0, help="Number of this process among the processes that share an epoch, from 0", least=0
        ),
        "size": Option(default=1, help="Number of processes that share an epoch", least=1),
        "drop_last": Option(
            default=False,
            help="Leave out a last batch that is smaller than the others, and batches that not every process has",
        ),
        "workers": Option(
            kind=int,
            help="Threads that prepare batches ahead; 0: none; by default one per core, at most 4, and none in workers"
            " of torch's DataLoader",
            least=0,
            most=4096,
        ),
        "pool": Option(
            kind=int, help="Batches that are prepared ahead, at most; by default one more than workers", least=1
        ),
        "features": Option(
            default="float32", help="Type of the features of vertices and edges; none: leave them out", choices=FEATURES
        ),
        "feature_norm": Option(
            default="none", help="Scaling of each vertex's features; row: to a sum of 1", choices=("none", "row")
        ),
        "labels": Option(default=True, help="Read labels; by default only for batches of pairs that have labels"),
    }
)
#: Options of the edges of batches of a graph without types.
_EDGES: Final[Mapping[str, Option]] = MappingProxyType(
    {
        "normalization": Option(
            default=STORED,
            help="Weights of edges; stored: the graph's weights, if it has weights; others: factors that make weighted"
            " sums over the edges of a batch, on average, the normalized sums over all edges",
            choices=(STORED, *NORMALIZATIONS),
        ),
        "adj_t": Option(default=False, help="Give the edges as a sparse matrix of torch, whose rows are targets"),
    }
)
_SEED: Final = Option(default=0, help="Seed of the random streams", least=0)
_SHUFFLE: Final = Option(default=True, help="Take examples in a random order that differs between epochs")
_NEIGHBORS: Final[Mapping[str, Option]] = MappingProxyType(
    {
        "fanout": replace(
            FANOUTS,
            help=f"{FANOUTS.help}; or a mapping from relations to fan-outs, where 0 leaves a relation out",
            example="(15, 10, 5)",
        ),
        "batch_size": replace(BATCH_SIZE, help="Vertices, or pairs, of a batch"),
        "split": Option(
            default="train",
            help="Split of the examples; all: every vertex",
            choices=(*(name for name in SPLIT if name != "none"), ALL_VERTICES),
        ),
        "shuffle": _SHUFFLE,
        "seed": _SEED,
        **{name: NEIGHBOR_OPTIONS[name] for name in ("neighbor_sampler", "replace")},
        "cache_memory": replace(
            NEIGHBOR_OPTIONS["cache_memory"],
            help="Memory for features of batches that are drawn ahead and read together, if the features of all"
            " vertices do not stay in memory; 0: read one batch at a time",
        ),
    }
)
_SUBGRAPHS: Final[Mapping[str, Option]] = MappingProxyType(
    {
        "sampler": Option(
            default=NEIGHBOR,
            help="What draws batches: neighbor, or a sampler of subgraphs",
            choices=(NEIGHBOR, *SUBGRAPHS["sampler"].choices),
        ),
        "batch_size": BATCH_SIZE,
        "seed": _SEED,
        **{name: MODE.options[name] for name in ("batches", "presamples")},
        **{name: option for name, option in SUBGRAPHS.items() if name != "sampler"},
    }
)
_PAIRS: Final[Mapping[str, Option]] = MappingProxyType(
    {
        **_NEIGHBORS,
        "negatives": Option(
            kind=int,
            help="Number of negatives to draw per pair of a split without stored negatives; 0 also leaves out stored"
            " negatives; by default 1 for training pairs without values, the number of an evaluation for other pairs"
            " without values, else 0",
            least=0,
        ),
        **{name: NEGATIVES[name] for name in ("negative_sampler", "strict_negatives")},
        "exclude_targets": replace(
            PAIRS["exclude_targets"],
            help="Draw neighbors as if the graph lacked the edges of a batch's pairs; by default of training pairs",
        ),
    }
)
_RELATIONS: Final[Mapping[str, Option]] = MappingProxyType(
    {
        "fanout_total": FANOUT_TOTAL,
        "reverse": REVERSE,
    }
)
#: The options that each kind of batches takes besides the common ones.
_OWN: Final[Mapping[str, Mapping[str, Option]]] = MappingProxyType(
    {
        DRAWN: {"sampler": _SUBGRAPHS["sampler"], **_NEIGHBORS, **_EDGES},
        SUBGRAPH: {**_SUBGRAPHS, **_EDGES},
        OF_PAIRS: {**_PAIRS, **_EDGES},
        PACKED: _EDGES,
        TYPED: {"sampler": _SUBGRAPHS["sampler"], **_NEIGHBORS, **_RELATIONS},
        TYPED_PAIRS: {**_PAIRS, **_RELATIONS},
        TYPED_PACKED: {},
    }
)


def loader_options() -> dict[str, Option]:
    """The options of :func:`loader` by name."""
    options = {**_NEIGHBORS, **_COMMON, **_EDGES, **_SUBGRAPHS, **_PAIRS, **_RELATIONS}
    return {name: replace(option, name=name) for name, option in options.items()}


def checked_options(given: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The given options, checked.

    Args:
        kind: kind of the batches.

    Raises:
        InputError: an option is unknown, out of its range, or not one of this kind of batches.
    """
    known, values = loader_options(), plain_values(given)
    check_known("loader", values, known)
    if isinstance(values.get("fanout"), int):
        values["fanout"] = (values["fanout"],)
    for name in values:
        if name not in _COMMON and name not in _OWN[kind]:
            kinds = " and ".join(each for each, own in _OWN.items() if name in own)
            raise InputError(f"loader: {name} is not an option of batches of {kind}; batches of {kinds} have it")
    by_relation = kind in {TYPED, TYPED_PAIRS} and isinstance(values.get("fanout"), Mapping)
    return {
        name: value if by_relation and name == "fanout" else known[name].check(value) for name, value in values.items()
    }


def relation_fanouts(given: Any, relations: Sequence[tuple[str, str, str]]) -> dict[str, tuple[int, ...]]:
    """Fan-outs for each hop, by the name of the relation.

    Args:
        given: numbers for each hop, for all relations; or a mapping from names of relations, or from triples of source
            type, name and target type, to such numbers or to one number for all hops.
        relations: source type, name and target type of each relation.

    Raises:
        InputError: a relation has no number, or is unknown, or a number is out of range, or hops differ.
    """
    names = [name for _, name, _ in relations]
    if not isinstance(given, Mapping):
        return dict.fromkeys(names, tuple(given))
    known: dict[Any, str] = {name: name for name in names}
    known |= {ends: ends[1] for ends in relations}
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            raise InputError(f"fanout: no relation {key!r}; {did_you_mean(str(key), names, 'there are')}")
        found[known[key]] = value
    if missing := [name for name in names if name not in found]:
        raise InputError(f"fanout: no number for relation {missing[0]}; give 0 to leave it out")
    lengths = {len(value) for value in found.values() if not isinstance(value, int)}
    if len(lengths) > 1:
        raise InputError(f"fanout: {' and '.join(map(str, sorted(lengths)))} hops; give each relation the same number")
    num_hops, option = next(iter(lengths), 1), replace(_NEIGHBORS["fanout"], name="fanout", least=0)
    hops = {name: (value,) * num_hops if isinstance(value, int) else tuple(value) for name, value in found.items()}
    return {name: option.check(value) for name, value in hops.items()}
