"""Blocks: contiguous ranges of rows, for vertices whose order is already good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gnnloom.pipeline.partition.partitioner import Partitioner, PartitionProblem

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def _fill(problem: PartitionProblem, part: NDArray[np.int32]) -> dict[str, Any]:
    from gnnloom.pipeline.partition import streaming  # noqa: PLC0415 - keeps the descriptor light

    streaming.block_partition(part, problem.graph, problem.options.parts, problem.options.weighing)
    return {}


PARTITIONER = Partitioner(
    "block", order=60, help="Contiguous ranges of rows of about equal weight.", fill=_fill, is_baseline=True
)
