"""``broadcast`` (1D): the row blocks of all ranks are broadcast in turn; ``replicated`` (1.5D): c copies of each block.

A product of width w on P ranks sends (P - 1) n w words in P broadcasts. On P / c blocks of c copies it sends
(P / c - 1) n w words in broadcasts, (c - 1) n w words in reduce-scatters over the copies, and (1 - 1 / c) n w words to
the copies that broadcast. Between products a rank holds 1 / c of its block's rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gnnloom.trainer.algorithms.algorithm import Algorithm, OperatorContext, build_on_grid
from gnnloom.trainer.algorithms.steps import Operation, Spread, Step, Steps, add_alignment, add_common, pipelined
from gnnloom.trainer.algorithms.workload import Exchange, Footprint, Workload, share, unchanging
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.open_shards import GRID_SHARDS, SharedGridShards

if TYPE_CHECKING:
    from gnnloom.trainer.operators.operator import Operator


#: Blocks of the features are multiplied by one call as long as they take at most these bytes. On many ranks, a row of
#: the output has an entry in few blocks, and each call reads and writes it for them; and a call takes microseconds.
_TOGETHER_BYTES = 16 << 20
#: Minimum number of calls of a product with more blocks; the arrival of the first block is not hidden.
_LEAST_CALLS = 4


def blocks_together(n: int, blocks: int, copies: int, width: int, number_size: int) -> int:
    """Number of blocks of the features that are multiplied by one call.

    Args:
        width: the largest of the model, as layers share the blocks of the adjacency.
    """
    taken = -(-blocks // copies)
    fitting = _TOGETHER_BYTES // max(1, -(-n // blocks) * width * number_size)
    return max(1, min(fitting, taken // _LEAST_CALLS))


def build(context: OperatorContext[SharedGridShards]) -> Operator:
    """Read this rank's row block. Communicates nothing."""
    from gnnloom.trainer.operators.row_blocks import RowBlocks  # noqa: PLC0415 - imports torch

    n, axes, width = context.shards.shards.num_vertices, context.axes, max(context.plan.dims)
    together = blocks_together(n, axes["row"], axes.get("replica", 1), width, context.place.feature_dtype.itemsize)
    return build_on_grid(context, lambda grid, adjacency: RowBlocks(grid, adjacency, context.plan, together))


def footprint(axes: Mapping[str, int], orders: Sequence[bool]) -> list[Footprint]:
    """Footprint of a rank; also for the copies of ``replicated``, which divide the blocks of columns."""
    blocks, copies = axes["row"], axes.get("replica", 1)
    mine = 1 / (blocks * copies)
    # While one block of another rank is multiplied, the next one arrives; a copy's own block is collected before.
    arriving = min(2, blocks - 1) if copies == 1 else min(3, share(blocks, copies))
    return unchanging(
        len(orders),
        Footprint(
            rows=mine,
            held=mine,
            product=1 / blocks,
            received=arriving / blocks,
            received_bytes=2 * _TOGETHER_BYTES if share(blocks, copies) >= 2 * _LEAST_CALLS else 0,
            adjacency=mine,
            pointers=1 / copies,
        ),
    )


def steps(work: Workload, axes: Mapping[str, int], options: Mapping[str, Any]) -> list[Step]:  # noqa: ARG001
    """An epoch; also of the copies of ``replicated``, which divide the broadcasts and sum their results.

    Tripathy, Yelick, Buluc (SC 2020), sections IV-A and IV-B; copies sum by a reduce-scatter instead of an all-reduce.
    """
    found, n = Steps(work, axes), work.num_vertices
    blocks, copies = axes["row"], axes.get("replica", 1)
    rows, taken, held = share(n, blocks), share(blocks, copies), share(n, blocks * copies)
    collected = _collected(n, blocks, copies)
    together = blocks_together(n, blocks, copies, max(work.dims), work.feature_size)
    calls = float(-(-int(taken) // together))
    spreads = [Spread(tuple(axes), (), layer % 2 * work.double_order) for layer in range(work.num_layers + 1)]
    for layer, backward, width in work.products:
        kind = Kind.PROPAGATE_BACKWARD if backward else Kind.PROPAGATE_FORWARD
        found.scale(held * width, backward)
        found.exchange(kind, collected, width, axes=("replica",) if copies > 1 else ())
        # The busiest copy takes one source block more than the others if they do not divide.
        found.multiply(part=taken / blocks / blocks, rows=rows, columns=rows * together, width=width, calls=calls)
        # The blocks of a call arrive while the blocks of the call before are multiplied.
        found.communicate(kind, Operation.BROADCAST, ("row",), n * width, blocks, overlapped=pipelined(calls))
        if copies > 1:
            found.communicate(kind, Operation.REDUCE_SCATTER, ("replica",), n * width, blocks)
        elif calls > 1:
            found.narrow(held * width)
        if work.aligns_own(layer) and not backward:
            returns = work.own_has_gradient(layer)
            add_alignment(found, spreads[layer], spreads[layer + 1], width, backward=returns)
    for layer, (before, after) in enumerate(work.pairs):
        found.transform(layer, rows=held, inner=before, columns=after)
    add_common(found, spreads, tuple(axes), work.vectors + work.matrices)
    return found.found


def _collected(n: int, blocks: int, copies: int) -> Exchange:
    """Rows that the copies of a block send to the one that broadcasts it; an empty range is not sent."""
    parts = blocks * copies
    rows = messages = 0
    for copy in range(copies):
        for block in range(copy * blocks // copies, (copy + 1) * blocks // copies):
            bounds = [part * n // parts for part in range(block * copies, (block + 1) * copies + 1)]
            sizes = [stop - start for start, stop in pairwise(bounds)]
            del sizes[copy]
            rows, messages = rows + sum(sizes), messages + sum(size > 0 for size in sizes)
    busiest = share(n, blocks) - share(n, parts)
    return Exchange(rows=rows, messages=messages, busiest_rows=busiest, busiest_messages=copies - 1)


BROADCAST = Algorithm(
    name="broadcast",
    order=1,
    help="Row blocks (1D); each rank's block of features is broadcast in turn",
    source="Tripathy, Yelick, Buluc, SC 2020, section IV-A",
    axes=("row",),
    reads=GRID_SHARDS,
    build=build,
    footprint=footprint,
    steps=steps,
)
REPLICATED = replace(
    BROADCAST,
    name="replicated",
    order=2,
    help="Row blocks in c copies (1.5D); each copy takes part of the broadcasts, and the sums are scattered",
    source="Tripathy, Yelick, Buluc, SC 2020, section IV-B",
    axes=("row", "replica"),
)
ALGORITHM = BROADCAST, REPLICATED
