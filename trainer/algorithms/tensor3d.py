"""``tensor3d``: three-dimensional tensor parallelism, whose planes change from layer to layer.

On an X x Y x Z grid the first layer all-reduces A H over X, H W over Y, and their gradients over X and Z; the axes
change their roles with every layer. Weights are gathered, and their gradients scattered, along one axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gnnloom.storage.option import Option
from gnnloom.trainer.algorithms.algorithm import Algorithm, OperatorContext, build_on_grid
from gnnloom.trainer.algorithms.steps import (
    Operation,
    Spread,
    Step,
    Steps,
    add_alignment,
    add_common,
    pipelined,
    products_by_layer,
)
from gnnloom.trainer.algorithms.workload import Footprint, Workload, share
from gnnloom.trainer.comm.traffic import Kind
from gnnloom.trainer.data.open_shards import GRID_SHARDS, SharedGridShards

if TYPE_CHECKING:
    from gnnloom.trainer.operators.operator import Operator


def build(context: OperatorContext[SharedGridShards]) -> Operator:
    """Read this rank's planes. Communicates nothing."""
    from gnnloom.trainer.operators.tensor3d import Tensor3D  # noqa: PLC0415 - imports torch

    blocks, product = (context.options[name] for name in ("aggregation_blocks", "gradient_product"))
    return build_on_grid(context, lambda grid, adjacency: Tensor3D(grid, adjacency, context.plan, blocks, product))


def footprint(axes: Mapping[str, int], orders: Sequence[bool]) -> list[Footprint]:
    """Footprint of a rank; see :mod:`gnnloom.trainer.operators.tensor3d` for the roles of the axes."""
    outer, inner, depth = "x", "y", "z"
    found: list[Footprint] = []
    # One more than the number of layers, for the output.
    for propagates_first in (*orders, True):
        target = depth if propagates_first else inner
        width = inner if propagates_first else depth
        # Ranks along depth hold copies of a layer's input, but separate shares of the model's input features.
        copy = 1 / (axes[outer] * axes[inner])
        held = copy if found else copy / axes[depth]
        found.append(
            Footprint(
                rows=1 / axes[outer],
                held=held,
                product=1 / (axes[target] * axes[width]),
                received=copy - held,
                adjacency=1 / (axes[target] * axes[outer]),
                pointers=1 / axes[target],
                window=(target, outer),
            )
        )
        outer, inner, depth = (depth, outer, inner) if propagates_first else (inner, depth, outer)
    return found


def steps(work: Workload, axes: Mapping[str, int], options: Mapping[str, Any]) -> list[Step]:
    """The steps of an epoch: Ranjan et al. (SC 2025), section 3, and our variant for A (H W)."""
    found, n = Steps(work, axes), work.num_vertices
    outer, inner, depth = "x", "y", "z"
    products = products_by_layer(work)
    spreads = [Spread((outer, depth), (inner,), 0)]
    for layer, (before, after) in enumerate(work.pairs):
        first, order = work.propagates_first[layer], [(layer + side) % 2 * work.double_order for side in (0, 1)]
        target, columns = (depth, inner) if first else (inner, depth)
        for _, backward, width in products[layer]:
            source = (target if backward else outer,)
            kind = Kind.PROPAGATE_BACKWARD if backward else Kind.PROPAGATE_FORWARD
            takes_input = layer == 0 and first
            if takes_input and not backward:
                found.communicate(kind, Operation.ALL_GATHER, (depth,), n * width, found.ranks // axes[depth])
            sides = (target, outer)[:: -1 if backward else 1]
            found.scale(share(n, axes[sides[1]]) * share(width, axes[columns]), backward)
            found.multiply(
                part=1 / (axes[target] * axes[outer]),
                rows=share(n, axes[sides[0]]),
                columns=share(n, axes[sides[1]]),
                width=share(width, axes[columns]),
                calls=options["aggregation_blocks"],
            )
            groups = found.ranks // found.size(source)
            if takes_input and backward:
                found.communicate(kind, Operation.REDUCE_SCATTER, source, n * width, groups)
            else:
                blocks = options["aggregation_blocks"]
                found.communicate(
                    kind, Operation.ALL_REDUCE, source, n * width, blocks * groups, overlapped=pipelined(blocks)
                )
        _add_transform(found, layer, before, after, (outer, inner, depth))
        output = Spread((target,), (outer if first else depth,), order[1])
        if work.aligns_own(layer):
            ends = (spreads[layer], Spread((depth,), (inner,), order[1]))
            if not first:
                ends = (Spread((outer,), (depth,), order[0]), output)
            returns = work.own_has_gradient(layer)
            add_alignment(found, ends[0], ends[1], before if first else after, backward=returns)
        spreads.append(output)
        outer, inner, depth = (depth, outer, inner) if first else (inner, depth, outer)
    add_common(found, spreads, tuple(axes), work.vectors)
    return found.found


def _add_transform(found: Steps, layer: int, before: int, after: int, roles: tuple[str, str, str]) -> None:
    """A layer's products with its weights: the sums over inner, the gathered input, weights and their gradients."""
    work, n, axes = found.work, found.work.num_vertices, found.axes
    outer, inner, depth = roles
    first = work.propagates_first[layer]
    split, columns, rows = (depth, outer, depth) if first else (outer, depth, outer)
    gathers = layer == 0 and not first
    for _ in range(work.weights):
        if gathers:
            calls = found.ranks // axes[depth]
            found.communicate(Kind.TRANSFORM_FORWARD, Operation.ALL_GATHER, (depth,), n * before, calls)
        calls = found.ranks // axes[inner]
        found.communicate(Kind.TRANSFORM_FORWARD, Operation.ALL_REDUCE, (inner,), n * after, calls)
        if work.has_input_gradient(layer):
            operation = Operation.REDUCE_SCATTER if gathers else Operation.ALL_REDUCE
            calls = found.ranks // axes[columns]
            found.communicate(Kind.TRANSFORM_BACKWARD, operation, (columns,), n * before, calls)
        for operation in (Operation.ALL_GATHER, Operation.REDUCE_SCATTER):
            calls, size = found.ranks // axes[split], work.parameter_size
            found.communicate(Kind.WEIGHT, operation, (split,), before * after, calls, size)
    found.transform(
        layer, rows=share(n, axes[rows]), inner=share(before, axes[inner]), columns=share(after, axes[columns])
    )


ALGORITHM = Algorithm(
    name="tensor3d",
    order=5,
    help="Tensor parallelism on an X x Y x Z grid; features, weights and adjacency are split over its planes",
    source="Ranjan et al., Plexus, SC 2025, sections 3 and 5",
    axes=("x", "y", "z"),
    reads=GRID_SHARDS,
    build=build,
    footprint=footprint,
    steps=steps,
    options={
        "aggregation_blocks": Option(
            default=1, help="Number of row blocks of a product; ranks sum a block while they form the next one", least=1
        ),
        "gradient_product": Option(
            default="straight",
            help="How to form the gradient of a weight: as H^T dQ, as (dQ^T H)^T, or the one that is measured to be"
            " faster",
            choices=("straight", "transposed", "measured"),
        ),
    },
)
