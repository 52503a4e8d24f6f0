"""``p2p``: point-to-point exchange of exactly the rows that each rank needs.

A product of width w sends km1 * w words, where km1 is the connectivity-1 cut of the column-net hypergraph, in one
message to each rank that needs a row. With ``--exchange cover``, ranks send a sum in place of several rows if that is
less, so that the number of words is minimal, in the same messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gnnloom.storage.errors import InputError
from gnnloom.storage.option import Option
from gnnloom.trainer.algorithms.algorithm import NEIGHBORS, ONE_LAYOUT, STREAMS, Algorithm, OperatorContext
from gnnloom.trainer.algorithms.steps import Spread, Step, Steps, add_common
from gnnloom.trainer.algorithms.workload import Workload, share
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.open_shards import ROW_SHARDS, OwnRowShard

if TYPE_CHECKING:
    from gnnloom.trainer.operators.operator import Operator


#: Values of the option ``exchange``.
ROWS, COVER = "rows", "cover"


def build(context: OperatorContext[OwnRowShard]) -> Operator:
    """Read this rank's shard. Communicates nothing."""
    from gnnloom.trainer.operators.p2p import PointToPoint  # noqa: PLC0415 - imports torch

    return PointToPoint(
        context.comm,
        context.shards.shard,
        context.normalization,
        context.place,
        multiplies=context.differentiates,
        # An evaluation from disk always exchanges rows.
        covers=context.options["exchange"] == COVER and not context.shards.shard.on_disk,
    )


def steps(work: Workload, axes: Mapping[str, int], options: Mapping[str, Any]) -> list[Step]:  # noqa: ARG001
    """The steps of an epoch, from the partition's exchange for a product.

    Demirci, Haldar, Ferhatosmanoglu (PVLDB 16(4), 2022), section 5: a product of width w sends km1 * w words. With
    ``--exchange cover``, it sends w words for each row and sum of the minimum covers.

    Raises:
        InputError: the workload has no exchange.
    """
    found, (ranks,) = Steps(work, axes), axes.values()
    forward, back = work.exchange, work.exchange_back or work.exchange
    if ranks > 1 and (forward is None or back is None):
        raise InputError("algorithm p2p: its traffic depends on a partition, and there is none")
    rows = share(work.num_vertices, ranks)
    for _, backward, width in work.products:
        # Gradients through attention return to the ranks from which the rows came.
        exchange = back if backward and not work.attends else forward
        neighbors, sent = (0.0, 0.0) if exchange is None else (exchange.messages / ranks, exchange.rows / ranks)
        # Partitions do not store the number of nonzeros in own columns: all columns, own or received, count alike.
        own = rows / (rows + sent) / ranks
        # Own columns, while the rows of other ranks arrive.
        found.multiply(part=own, rows=rows, columns=rows, width=width)
        if exchange is not None:
            kind = Kind.HALO_BACKWARD if backward else Kind.HALO_FORWARD
            found.exchange(kind, exchange, width, overlapped=1.0)
            found.touch(3 * exchange.busiest_rows * width, 2)
        if neighbors:
            # Then the columns of each neighbor, in the number of rows that this neighbor receives: in a symmetric
            # matrix, these rows have entries in the neighbor's columns.
            each = sent / neighbors
            found.multiply(part=1 / ranks - own, rows=each, columns=each, width=width, calls=neighbors)
            found.narrow(rows * width)
    for layer, (before, after) in enumerate(work.pairs):
        found.transform(layer, rows=rows, inner=before, columns=after)
    add_common(found, [Spread(("row",))] * (work.num_layers + 1), ("row",), work.vectors + work.matrices)
    return found.found


ALGORITHM = Algorithm(
    name="p2p",
    order=0,
    help="Row shards of a partition; ranks exchange only the rows they need, while they multiply",
    source="Demirci, Haldar, Ferhatosmanoglu, PVLDB 16(4), 2022, Algorithms 1 and 2",
    axes=("row",),
    reads=ROW_SHARDS,
    build=build,
    steps=steps,
    capabilities=frozenset({NEIGHBORS, ONE_LAYOUT, STREAMS}),
    lacks={"exchange": {COVER: frozenset({NEIGHBORS, STREAMS})}},
    options={
        "exchange": Option(
            default=ROWS,
            help="What ranks send for a product: rows, or also partial sums of rows where fewer sums than rows are"
            " needed; not for attention",
            choices=(ROWS, COVER),
        )
    },
)
