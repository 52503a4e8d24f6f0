"""``summa`` (2D): SUMMA on a p x q grid.

A product of width w sends (p - 1) n w words of features along the process columns, and the adjacency q - 1 times along
the process rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gnnloom.trainer.algorithms.algorithm import Algorithm, OperatorContext
from gnnloom.trainer.algorithms.footprint import Footprint, unchanging
from gnnloom.trainer.algorithms.on_grid import build_on_grid
from gnnloom.trainer.algorithms.option import Option
from gnnloom.trainer.data.open_shards import GRID_SHARDS, SharedGridShards

if TYPE_CHECKING:
    from gnnloom.trainer.operators.operator import Operator

OPTIONS = {
    "summa_width": Option(
        default=0, help="Maximum number of vertices in a stage; 0: as many as one rank holds", least=0
    )
}


def build(context: OperatorContext[SharedGridShards]) -> Operator:
    """Read this rank's blocks. Communicates nothing."""
    from gnnloom.trainer.operators.summa import Summa  # noqa: PLC0415 - imports torch

    width = context.options["summa_width"]
    return build_on_grid(context, lambda grid, adjacency: Summa(grid, adjacency, context.plan, width))


def footprint(axes: Mapping[str, int], orders: Sequence[bool]) -> list[Footprint]:
    """What a rank holds; also of the layers of ``split3d``, which divide the sum over the vertices."""
    rows, columns, layers = axes["row"], axes["column"], axes.get("layer", 1)
    # A layer's vertices are cut wherever the owner of the features or of the adjacency changes.
    stages = rows + columns - 1
    # A block of the adjacency arrives together with the features that it is multiplied with, and while those of the
    # stage before are multiplied.
    at_a_time = min(2, stages)
    mine = 1 / (rows * columns * layers)
    return unchanging(
        len(orders),
        Footprint(
            rows=1 / (rows * layers),
            held=mine,
            product=1 / (rows * columns),
            received=at_a_time / (columns * max(rows, columns) * layers) if stages > 1 else 0.0,
            adjacency=mine,
            arriving=at_a_time * mine * columns / stages if columns > 1 else 0.0,
            pointers=-(-stages // columns) / rows,
        ),
    )


ALGORITHM = Algorithm(
    name="summa",
    order=3,
    help="SUMMA on a p x q grid (2D); blocks of features and of the adjacency are broadcast in stages",
    source="Tripathy, Yelick, Buluc, SC 2020, section IV-C",
    axes=("row", "column"),
    reads=GRID_SHARDS,
    build=build,
    options=OPTIONS,
    footprint=footprint,
)
