"""``subgraph``: every rank trains on its own subgraphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnnloom.storage.option import Option
from gnnloom.storage.samplers.kind import MOST_COUNTED, SUFFICIENT
from gnnloom.storage.samplers.registry import SAMPLERS
from gnnloom.trainer.algorithms.algorithm import NEIGHBORS, ONE_LAYOUT
from gnnloom.trainer.modes.kind import EDGES, LEARNED, RANKS_DECIDE, Adjacency, BatchSizes, ModeKind, RankRows
from gnnloom.trainer.modes.options import AHEAD, AUTO, BATCH_SIZE, SUBGRAPHS


def batch(options: Mapping[str, Any], num_layers: int, rank: RankRows) -> BatchSizes:
    """A subgraph of the size that its sampler states."""
    rows, nonzeros = SAMPLERS[options["sampler"]].sizes(options, rank.num_vertices, rank.nnz)
    return BatchSizes(
        rows=[rows] * (num_layers + 1),
        nonzeros=[nonzeros],
        loops=rows if rank.has_loops else 0.0,
        has_features=True,
        fetches=True,
        maps_features=True,
    )


MODE = ModeKind(
    name="subgraph",
    order=1,
    help="Every rank trains on its own sampled subgraphs; a step is the mean over the subgraphs of all ranks",
    source="Zeng et al., IPDPS 2019; GraphSAINT, ICLR 2020; Cluster-GCN, KDD 2019",
    place=("gnnloom.trainer.modes.epochs.subgraph", "SubgraphMode"),
    adjacency=Adjacency.DRAWN,
    offers=frozenset({EDGES, LEARNED, RANKS_DECIDE}),
    needs=frozenset({NEIGHBORS, ONE_LAYOUT}),
    batch=batch,
    options={
        "batch_size": BATCH_SIZE,
        "batches": Option(
            default=0, help="Batches per epoch of all ranks; 0: enough to draw every vertex once on average", least=0
        ),
        "presamples": Option(
            default=0,
            help="Number of batches to draw before training, from which GraphSAINT's weights of losses and edges are"
            f" estimated; auto: enough to draw every vertex {SUFFICIENT} times on average, at most {MOST_COUNTED:,}; 0:"
            " no weights. For samplers vertex, edge and cluster, any number but 0 gives exact weights, and no batches"
            " are drawn",
            least=AUTO,
            words={"auto": AUTO},
        ),
        **SUBGRAPHS,
        **AHEAD,
    },
)
