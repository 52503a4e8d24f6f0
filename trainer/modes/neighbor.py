"""``neighbor``: batches of training vertices, and some neighbors of each, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gnnloom.storage.disk.row_windows import NUMBER_BYTES
from gnnloom.storage.errors import InputError
from gnnloom.storage.neighbor_samplers.kind import ALL
from gnnloom.storage.option import Option
from gnnloom.storage.sampling.layers.options import (
    FANOUT,
    FANOUT_TOTAL,
    NEIGHBOR_OPTIONS,
    RELATION_FANOUT,
    REVERSE,
    check_neighbor_options,
    relation_fanouts,
)
from gnnloom.storage.wording import counted
from gnnloom.trainer.algorithms.algorithm import NEIGHBORS, ONE_LAYOUT
from gnnloom.trainer.models.kind import TYPES
from gnnloom.trainer.modes.kind import (
    EDGES,
    LEARNED,
    PAIRS,
    RANKS_DECIDE,
    ROWS_ON_DISK,
    Adjacency,
    BatchSizes,
    ModeKind,
    RankRows,
    RowDraws,
)
from gnnloom.trainer.modes.options import AHEAD, INPUTS, ON_DISK

#: Standard deviations by which the largest of many batches exceeds the mean.
_DEVIATIONS = 3


def fanouts(given: tuple[int, ...], num_layers: int, *, on_edges: bool = False) -> tuple[int, ...]:
    """Fan-outs of sampled neighbors, from the layer of the seeds on.

    Args:
        on_edges: the model takes all edges of a batch at once. Further hops then complete the rows of the last hop.

    Raises:
        InputError: the number of fan-outs differs from the number of layers.
    """
    if on_edges and len(given) > num_layers:
        return given
    if given and len(given) != num_layers:
        shown = ",".join(map(str, given))
        raise InputError(f"fanout {shown}: the model has {counted(num_layers, 'layer')}; give one number per layer")
    return given or (FANOUT,) * num_layers


def batch(options: Mapping[str, Any], num_layers: int, rank: RankRows) -> BatchSizes:
    """The seeds of a batch, and layer by layer their neighbors."""
    n, size = max(1, rank.num_vertices), options["batch_size"]
    rows, nonzeros = [float(min(size, rank.training))], list[float]()
    known, kept, kept_loops = 0.0, 0.0, 0.0
    knows_lengths = bool(rank.lengths) and not options["replace"]
    # Seeds are treated as vertices that the draw of a single entry finds.
    share = 1 / max(1.0, rank.others)
    # A model on edges may have more fan-outs than layers; for other models, the number was checked before.
    for fanout in fanouts(options["fanout"], num_layers, on_edges=True):
        # Nothing is known about the seeds. Vertices that are reached by edges have a larger degree than the mean, so a
        # fan-out counts in full unless the lengths of rows are known.
        each = later = RowDraws(rank.mean_degree if fanout == ALL else float(fanout))
        if knows_lengths:
            most = math.inf if fanout == ALL else fanout
            each, later = rank.drawn_of(most, 0.0) if fanout == ALL else each, rank.drawn_of(most, share)
        reached = rows[0] - max(known, rows[-1])
        seeds = rows[0] - known - reached
        deviation = math.sqrt(max(0.0, seeds * each.variance + reached * later.variance))
        drawn = seeds * each.mean + reached * later.mean + _DEVIATIONS * deviation
        drawn = drawn if options["replace"] else min(drawn, float(rank.nnz))
        nonzeros.insert(0, kept + drawn)
        drawn_loops = _least((seeds + reached) * later.likely * rank.has_loops)
        loops = kept_loops + drawn_loops
        if options["draw_once"]:
            # Rows of the previous layers keep their drawn entries.
            known, kept, kept_loops = rows[0], nonzeros[0], loops
        # Entries that add no vertex: loops, entries of a symmetric matrix for the vertex that a draw came from, and
        # entries of the same row that the previous layer drew.
        again = 0.0 if options["draw_once"] else sum(rows[1:2]) * later.mean
        back = _least((reached + again) * later.likely)
        share = min(1.0, (drawn - drawn_loops - back) / max(1.0, rank.others))
        missed = math.exp(-drawn / n) if options["replace"] else rank.missed_by(share)
        rows.insert(0, n - (n - rows[0]) * missed)
    is_stored, maps = options["samples"] is not None, options["inputs"] == ON_DISK
    # Frequent rows of other ranks or on disk, up to the memory limit.
    remote = rank.num_vertices - (0 if maps else rank.own)
    memory = 0 if is_stored else options["cache_memory"]
    row_bytes = rank.row_bytes + NUMBER_BYTES * maps
    # On disk, half of the memory is for two windows of batches, which have no rows that are kept, and for the numbers
    # of the rows of the next two windows.
    cached = min((memory - memory // 2 * maps) // max(1, row_bytes), remote)
    of_windows = 2 * (row_bytes + NUMBER_BYTES) * (remote - cached)
    windows = min(memory - cached * row_bytes, of_windows) if maps else 0
    return BatchSizes(
        rows=rows,
        nonzeros=nonzeros,
        loops=loops,
        is_layered=True,
        has_features=is_stored or maps,
        fetches=not maps,
        asked=rows[0] * (remote - cached) / n,
        copied=rows[0] * max(rank.own, cached) / n,
        num_batches=-(-rank.training // size),
        kept_bytes=cached * row_bytes + windows,
        maps_features=is_stored or maps,
    )


def _check(options: Mapping[str, Any], num_layers: int | None) -> None:
    """See :attr:`ModeKind.check`."""
    if num_layers is not None:
        fanouts(options["fanout"], num_layers)
    relation_fanouts(options["relation_fanout"], (), None)
    check_neighbor_options(options)


def _least(mean: float) -> float:
    """Smallest number of some independent events in any of many batches."""
    return max(0.0, mean - _DEVIATIONS * math.sqrt(mean))


MODE = ModeKind(
    name="neighbor",
    order=3,
    help="Batches of training vertices with sampled neighbors, layer by layer",
    source="Hamilton, Ying, Leskovec, NeurIPS 2017, appendix A",
    adjacency=Adjacency.DRAWN,
    offers=frozenset({PAIRS, EDGES, LEARNED, RANKS_DECIDE, ROWS_ON_DISK, TYPES}),
    place=("gnnloom.trainer.modes.epochs.neighbor", "NeighborMode"),
    place_of_types=("gnnloom.trainer.modes.epochs.typed", "TypedNeighborMode"),
    # Only row shards tell which rank owns a vertex.
    needs=frozenset({NEIGHBORS, ONE_LAYOUT}),
    batch=batch,
    check=_check,
    options={
        **NEIGHBOR_OPTIONS,
        "of_type": Option(
            default=None,
            kind=str,
            help="In a graph with types, the type whose labels your own model predicts",
            metavar="TYPE",
        ),
        "relation": Option(
            default=None,
            kind=str,
            help="In a graph with types, the relation whose pairs your own model predicts (--task link, edge-class,"
            " edge-number)",
            metavar="NAME",
        ),
        "relation_fanout": RELATION_FANOUT,
        "fanout_total": FANOUT_TOTAL,
        "reverse": REVERSE,
        "vertex_data": Option(
            default=(),
            kind=tuple[str, ...],
            help="In a graph with types, vertex data to use if a type has several, as TYPE=KEY,...",
            metavar="TYPE=KEY",
        ),
        "samples": Option(default=None, help="Key of the samples on disk to read instead of drawing"),
        "inputs": INPUTS,
        **AHEAD,
    },
)
