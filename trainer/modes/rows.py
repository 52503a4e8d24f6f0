"""``rows``: batches of training vertices; reads only their features and propagated features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnnloom.storage.option import Option
from gnnloom.trainer.algorithms.algorithm import NEIGHBORS, ONE_LAYOUT
from gnnloom.trainer.modes.kind import Adjacency, BatchSizes, ModeKind, RankRows
from gnnloom.trainer.modes.options import AHEAD, BATCH_SIZE

#: Bytes per vertex of the division of an epoch into batches, with two divisions kept, and of the position of its row.
_DIVIDED, _PLACED = 48, 32


def batch(options: Mapping[str, Any], num_layers: int, rank: RankRows) -> BatchSizes:
    """A rank may have all vertices of a batch; vertices have no neighbors."""
    rows = float(min(options["batch_size"], rank.own))
    return BatchSizes(
        rows=[rows] * (num_layers + 1),
        nonzeros=[0.0],
        has_features=True,
        kept_bytes=(_DIVIDED + _PLACED) * rank.own,
        maps_graph=False,
    )


MODE = ModeKind(
    name="rows",
    order=4,
    help="Batches of training vertices without edges: features and their propagated values, from `gnnloom propagate`",
    source="Frasca et al., SIGN, GRL+ workshop at ICML 2020",
    place=("gnnloom.trainer.modes.epochs.rows", "RowsMode"),
    # Only row shards tell which rank has a vertex.
    needs=frozenset({NEIGHBORS, ONE_LAYOUT}),
    adjacency=Adjacency.NONE,
    batch=batch,
    options={
        "propagated": Option(
            default=None, help="Key of the propagated values to read, if the dataset has several of this graph"
        ),
        "steps": Option(
            default=(),
            help="Matrices to concatenate as the input: 0 for the features, k for A^k X; by default, all stored"
            " matrices",
            least=0,
            example="0,1,2",
            metavar="STEPS",
        ),
        "batch_size": BATCH_SIZE,
        **AHEAD,
    },
)
