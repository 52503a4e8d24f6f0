"""``p2p``: point-to-point exchange of exactly the rows that each rank needs.

A product of width w sends km1 * w words, where km1 is the connectivity-1 cut of the column-net hypergraph, in one
message to each rank that needs a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnloom.trainer.algorithms.algorithm import NEIGHBORS, ONE_LAYOUT, Algorithm, OperatorContext
from gnnloom.trainer.data.open_shards import ROW_SHARDS, OwnRowShard

if TYPE_CHECKING:
    from gnnloom.trainer.operators.operator import Operator


def build(context: OperatorContext[OwnRowShard]) -> Operator:
    """Read this rank's shard. Communicates nothing."""
    from gnnloom.trainer.operators.p2p import PointToPoint  # noqa: PLC0415 - imports torch

    return PointToPoint(
        context.comm,
        context.shards.shard,
        context.normalization,
        context.dtype,
        context.threads,
        context.workspace,
        multiplies=context.differentiates,
        feature_dtype=context.feature_dtype,
    )


ALGORITHM = Algorithm(
    name="p2p",
    order=0,
    help="Row shards of a partition; ranks exchange only the rows they need, while they multiply",
    source="Demirci, Haldar, Ferhatosmanoglu, PVLDB 16(4), 2022, Algorithms 1 and 2",
    axes=("row",),
    reads=ROW_SHARDS,
    build=build,
    capabilities=frozenset({NEIGHBORS, ONE_LAYOUT}),
)
