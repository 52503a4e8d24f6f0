"""Random parts: a hash of the vertex, the baseline of every comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gnnloom.pipeline.partition.partitioner import Partitioner, PartitionProblem

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def _fill(problem: PartitionProblem, part: NDArray[np.int32]) -> dict[str, Any]:
    from gnnloom.pipeline.partition import streaming  # noqa: PLC0415 - keeps the descriptor light

    streaming.random_partition(part, problem.options.parts, problem.options.seed)
    streaming.fill_empty(part, problem.graph, problem.options.parts)
    return {}


PARTITIONER = Partitioner(
    "random", order=50, help="A hash of each vertex; balances vertices only.", fill=_fill, is_baseline=True
)
