"""``tensor3d``: three-dimensional tensor parallelism, whose planes change from layer to layer.

On an X x Y x Z grid the first layer all-reduces A H over X, H W over Y, and their gradients over X and Z; the axes
change their roles with every layer. Weights are gathered, and their gradients scattered, along one axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gnnloom.trainer.algorithms.algorithm import Algorithm, OperatorContext
from gnnloom.trainer.algorithms.footprint import Footprint
from gnnloom.trainer.algorithms.on_grid import build_on_grid
from gnnloom.trainer.algorithms.option import Option
from gnnloom.trainer.data.open_shards import GRID_SHARDS, SharedGridShards

if TYPE_CHECKING:
    from gnnloom.trainer.operators.operator import Operator


def build(context: OperatorContext[SharedGridShards]) -> Operator:
    """Read this rank's planes. Communicates nothing."""
    from gnnloom.trainer.operators.tensor3d import Tensor3D  # noqa: PLC0415 - imports torch

    blocks, product = (context.options[name] for name in ("aggregation_blocks", "gradient_product"))
    return build_on_grid(context, lambda grid, adjacency: Tensor3D(grid, adjacency, context.plan, blocks, product))


def footprint(axes: Mapping[str, int], orders: Sequence[bool]) -> list[Footprint]:
    """What a rank holds; see :mod:`gnnloom.trainer.operators.tensor3d` for the roles of the axes."""
    outer, inner, depth = "x", "y", "z"
    found: list[Footprint] = []
    # One more than there are layers, for the output.
    for propagates_first in (*orders, True):
        target = depth if propagates_first else inner
        width = inner if propagates_first else depth
        # Ranks along depth hold copies of a layer's input, but of the model's input features a share each.
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


ALGORITHM = Algorithm(
    name="tensor3d",
    order=5,
    help="Tensor parallelism on an X x Y x Z grid; features, weights and adjacency are split over its planes",
    source="Ranjan et al., Plexus, SC 2025, sections 3 and 5",
    axes=("x", "y", "z"),
    reads=GRID_SHARDS,
    build=build,
    footprint=footprint,
    options={
        "aggregation_blocks": Option(
            default=1, help="Row blocks of a product; each is summed over ranks while the next is formed", least=1
        ),
        "gradient_product": Option(
            default="straight",
            help="How the gradient of a weight is formed: as H^T dQ, as (dQ^T H)^T, or as measured to be faster",
            choices=("straight", "transposed", "measured"),
            former_choices={"turned": "transposed"},
        ),
    },
)
