"""``neighbor``: batches of training vertices, and some neighbors of each, layer by layer."""

from __future__ import annotations

from gnnloom.storage.option import Option
from gnnloom.trainer.algorithms.algorithm import NEIGHBORS, ONE_LAYOUT
from gnnloom.trainer.modes.batches import AHEAD, BATCH_SIZE
from gnnloom.trainer.modes.kind import ModeKind

MODE = ModeKind(
    name="neighbor",
    order=3,
    help="Batches of training vertices with sampled neighbors, layer by layer",
    source="Hamilton, Ying, Leskovec, NeurIPS 2017, appendix A",
    place=("gnnloom.trainer.training.modes.neighbor", "NeighborMode"),
    ranks_decide=True,
    # Only row shards say which rank owns a vertex.
    needs=frozenset({NEIGHBORS, ONE_LAYOUT}),
    # Batches are drawn from the graph, which all processes of a machine map.
    rows_evaluate=True,
    options={
        "fanout": Option(
            default=(),
            help="Neighbors to draw for each vertex, from the last layer to the first, such as 15,10,5; -1 for all;"
            " by default 10 in every layer",
            least=1,
            also=(-1,),
            example="15,10,5",
            metavar="FAN-OUTS",
        ),
        "batch_size": BATCH_SIZE,
        "replace": Option(default=False, help="Draw neighbors with replacement"),
        "samples": Option(default=None, help="Key of the samples on disk to read instead of drawing"),
        "cache_memory": Option(
            default=256 << 20,
            help="Memory per rank for the most frequent feature rows of other ranks, such as 512M",
            least=0,
            is_size=True,
        ),
        **AHEAD,
    },
)
