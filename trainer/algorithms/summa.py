"""``summa`` (2D): SUMMA on a p x q grid; ``split3d`` (3D): c layers of such a grid share the sum over the vertices.

A product of width w sends (p - 1) n w words of features along the process columns, and the adjacency q - 1 times along
the process rows. On a p x q x c grid it sends this within each layer, and (c - 1) n w words in reduce-scatters over the
layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from gnnloom.storage.option import Option
from gnnloom.trainer.algorithms.algorithm import Algorithm, OperatorContext, build_on_grid
from gnnloom.trainer.algorithms.steps import Operation, Spread, Step, Steps, add_alignment, add_common, pipelined
from gnnloom.trainer.algorithms.workload import Footprint, Workload, share, unchanging
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.open_shards import GRID_SHARDS, SharedGridShards

if TYPE_CHECKING:
    from gnnloom.trainer.operators.operator import Operator

#: Passes over the row ids or counts of a block, to prepare it for a product.
_PREPARED = 4


def build(context: OperatorContext[SharedGridShards]) -> Operator:
    """Read this rank's blocks. Communicates nothing."""
    from gnnloom.trainer.operators.summa import Summa  # noqa: PLC0415 - imports torch

    width, shards = context.options["summa_width"], context.shards.shards
    lists = lists_entries(shards.num_vertices, shards.nnz, _all_stages(shards.num_vertices, context.axes, width))
    return build_on_grid(
        context, lambda grid, adjacency: Summa(grid, adjacency, context.plan, width, lists_entries=lists)
    )


def footprint(axes: Mapping[str, int], orders: Sequence[bool]) -> list[Footprint]:
    """Footprint of a rank; also for the layers of ``split3d``, which divide the sum over the vertices."""
    rows, columns, layers = axes["row"], axes["column"], axes.get("layer", 1)
    # A layer's vertices are cut wherever the owner of the features or of the adjacency changes.
    stages = rows + columns - 1
    # A block of the adjacency arrives together with its features, while the blocks of the previous stage are
    # multiplied.
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


def steps(work: Workload, axes: Mapping[str, int], options: Mapping[str, Any]) -> list[Step]:
    """An epoch; also of the layers of ``split3d``, which divide the sum over the vertices.

    Tripathy, Yelick, Buluc (SC 2020), sections IV-C and IV-D.
    """
    found, n = Steps(work, axes), work.num_vertices
    rows, columns, layers = axes["row"], axes["column"], axes.get("layer", 1)
    layer_axes = tuple(axis for axis in ("layer",) if axis in axes)
    spreads = [
        Spread(("row", *layer_axes), ("column",), layer % 2 * work.double_order) for layer in range(work.num_layers + 1)
    ]
    stages = _all_stages(n, axes, options["summa_width"])
    numbers = work.nnz if lists_entries(n, work.nnz, stages) else stages * n
    for layer, backward, width in work.products:
        kind = Kind.PROPAGATE_BACKWARD if backward else Kind.PROPAGATE_FORWARD
        held, calls = share(width, columns), stages / layers
        found.scale(share(n, rows * layers) * held, backward)
        found.multiply(
            part=1 / (rows * layers),
            rows=share(n, rows),
            columns=n / max(1, stages),
            width=held,
            calls=calls,
        )
        # The operands of a stage arrive while the operands of the stage before are multiplied.
        hidden = pipelined(calls)
        for entries, size in (
            (numbers, work.row_size),
            (work.nnz, work.index_size),
            (work.nnz, work.value_size),
        ):
            if size:
                found.communicate(
                    Kind.ADJACENCY, Operation.BROADCAST, ("column",), entries, rows * stages, size, overlapped=hidden
                )
        found.communicate(kind, Operation.BROADCAST, ("row",), n * width, columns * stages, overlapped=hidden)
        # Blocks that arrive are prepared for their product in every epoch: their rows are listed.
        arriving = calls * (columns - 1) / columns
        found.touch(_PREPARED * arriving * numbers / max(1, rows * stages), _PREPARED * arriving)
        found.communicate(kind, Operation.REDUCE_SCATTER, layer_axes, n * width, rows * columns)
        if layers == 1 and stages > 1:
            found.narrow(share(n, rows) * held)
        if work.aligns_own(layer) and not backward:
            returns = work.own_has_gradient(layer)
            add_alignment(found, spreads[layer], spreads[layer + 1], width, backward=returns)
    calls = rows * layers * columns * work.weights
    for layer, (before, after) in enumerate(work.pairs):
        for kind, width in ((Kind.TRANSFORM_FORWARD, before), (Kind.TRANSFORM_BACKWARD, after)):
            found.communicate(kind, Operation.BROADCAST, ("column",), n * width * work.weights, calls)
        found.transform(layer, rows=share(n, rows * layers), inner=before, columns=share(after, columns), calls=columns)
        # One piece after the other is added to a sum that is as wide as what a rank holds of the result.
        for width in (after, before) if work.has_input_gradient(layer) else (after,):
            if columns > 1:
                found.touch(3 * work.weights * share(n, rows * layers) * width, work.weights * columns)
    add_common(found, spreads, tuple(axes), work.vectors + work.matrices)
    return found.found


def _all_stages(n: int, axes: Mapping[str, int], width: int) -> int:
    """Stages of all layers."""
    rows, columns, layers = axes["row"], axes["column"], axes.get("layer", 1)
    return sum(num_stages(n, rows, columns, layers, layer, width) for layer in range(layers))


def lists_entries(n: int, nnz: int, stages: int) -> bool:
    """Whether blocks are sent with the row of every entry instead of the number of entries of every row.

    One choice for all blocks, the one that takes fewer numbers in total, so that the bytes are known without reading
    the graph.
    """
    return nnz < stages * n


def num_stages(n: int, rows: int, columns: int, layers: int, layer: int, width: int) -> int:
    """Ranges of the vertices that a layer sums over: cut where an owner changes, and at most ``width`` long."""
    parts = rows * layers
    lengths = [(row * layers + layer + 1) * n // parts - (row * layers + layer) * n // parts for row in range(rows)]
    ends = list(accumulate(lengths, initial=0))
    total = ends[-1]
    cuts = {*ends, *(column * total // columns for column in range(columns + 1))}
    if not width:
        return len(cuts) - 1
    # The multiples of the width below the total are cuts too; not listed, as there may be many.
    return -(-total // width) + sum(cut % width != 0 or cut == total for cut in cuts) - 1


SUMMA = Algorithm(
    name="summa",
    order=3,
    help="SUMMA on a p x q grid (2D); blocks of features and of the adjacency are broadcast in stages",
    source="Tripathy, Yelick, Buluc, SC 2020, section IV-C",
    axes=("row", "column"),
    reads=GRID_SHARDS,
    build=build,
    options={
        "summa_width": Option(
            default=0, help="Maximum number of vertices in a stage; 0: all vertices of one rank", least=0
        )
    },
    footprint=footprint,
    steps=steps,
)
SPLIT3D = replace(
    SUMMA,
    name="split3d",
    order=4,
    help="SUMMA on c layers of a p x q grid (3D); the layers share the work and are summed by a reduce-scatter",
    source="Tripathy, Yelick, Buluc, SC 2020, section IV-D; Azad et al., SIAM J. Sci. Comput. 38(6), 2016",
    axes=("row", "column", "layer"),
)
ALGORITHM = SUMMA, SPLIT3D
