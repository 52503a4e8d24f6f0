"""``broadcast`` (1D): the row blocks of all ranks are broadcast in turn.

A product of width w on P ranks sends (P - 1) n w words in P broadcasts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gnnloom.trainer.algorithms.algorithm import Algorithm, OperatorContext
from gnnloom.trainer.algorithms.footprint import Footprint, unchanging
from gnnloom.trainer.algorithms.on_grid import build_on_grid
from gnnloom.trainer.data.open_shards import GRID_SHARDS, SharedGridShards

if TYPE_CHECKING:
    from gnnloom.trainer.operators.operator import Operator


def build(context: OperatorContext[SharedGridShards]) -> Operator:
    """Read this rank's row block. Communicates nothing."""
    from gnnloom.trainer.operators.row_blocks import RowBlocks  # noqa: PLC0415 - imports torch

    return build_on_grid(context, lambda grid, adjacency: RowBlocks(grid, adjacency, context.plan))


def footprint(axes: Mapping[str, int], orders: Sequence[bool]) -> list[Footprint]:
    """What a rank holds; also of the copies of ``replicated``, which divide the blocks of columns."""
    blocks, copies = axes["row"], axes.get("replica", 1)
    held = 1 / blocks
    # While one block of another rank is multiplied, the next one arrives.
    received = held * min(2, blocks - 1)
    return unchanging(
        len(orders),
        Footprint(rows=held, held=held, product=held, received=received, adjacency=held / copies, pointers=1 / copies),
    )


ALGORITHM = Algorithm(
    name="broadcast",
    order=1,
    help="Row blocks (1D); each rank's block of features is broadcast in turn",
    source="Tripathy, Yelick, Buluc, SC 2020, section IV-A",
    axes=("row",),
    reads=GRID_SHARDS,
    build=build,
    footprint=footprint,
)
