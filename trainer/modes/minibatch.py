"""``minibatch``: all ranks train on the same batches of random vertices, each on the rows that it owns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnnloom.trainer.algorithms.algorithm import NEIGHBORS, ONE_LAYOUT
from gnnloom.trainer.modes.kind import LEARNED, Adjacency, BatchSizes, ModeKind, RankRows
from gnnloom.trainer.modes.options import AHEAD, BATCH_SIZE

#: Bytes per vertex of the division of an epoch into batches; two divisions are kept.
_DIVIDED = 48


def batch(options: Mapping[str, Any], num_layers: int, rank: RankRows) -> BatchSizes:
    """A batch has a share of all vertices, including the rank's vertices."""
    rate = min(1.0, options["batch_size"] / max(1, rank.num_vertices))
    rows = rate * rank.own
    # Rows of mean degree among a share of all columns, and their own loops.
    nonzeros = rate * rows * rank.mean_degree + rows
    return BatchSizes(
        rows=[rows] * (num_layers + 1),
        nonzeros=[nonzeros],
        received=min(rate * rank.halo, nonzeros),
        kept_bytes=_DIVIDED * (rank.own + rank.halo),
        maps_graph=False,
    )


MODE = ModeKind(
    name="minibatch",
    order=2,
    help="Batches of random vertices, shared by all ranks; each rank trains on the vertices that it owns",
    source="Demirci, Haldar, Ferhatosmanoglu, PVLDB 16(4), 2022, section 4.3",
    place=("gnnloom.trainer.modes.epochs.minibatch", "MinibatchMode"),
    needs=frozenset({NEIGHBORS, ONE_LAYOUT}),
    adjacency=Adjacency.RESTRICTED,
    offers=frozenset({LEARNED}),
    batch=batch,
    options={"batch_size": BATCH_SIZE, **AHEAD},
)
