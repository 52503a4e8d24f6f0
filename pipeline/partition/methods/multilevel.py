"""The out-of-core method: for hypergraphs that do not fit in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gnnloom.pipeline.partition.multilevel.cost import MULTILEVEL_PRESETS, multilevel_cost
from gnnloom.pipeline.partition.partitioner import Partitioner, PartitionProblem

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def _fill(problem: PartitionProblem, part: NDArray[np.int32]) -> dict[str, Any]:
    from gnnloom.pipeline.partition.measure.balance import fill_only_choice  # noqa: PLC0415 - keeps the descriptor light
    from gnnloom.pipeline.partition.multilevel.out_of_core import partition_out_of_core  # noqa: PLC0415

    if fill_only_choice(part, problem.options.parts):
        return {}
    return partition_out_of_core(problem, part)


PARTITIONER = Partitioner(
    "multilevel",
    order=40,
    help="Out of core: nets stay on disk; one process maps 4 bytes per vertex.",
    fill=_fill,
    cost=multilevel_cost,
    presets=MULTILEVEL_PRESETS,
    weighs_directions=True,
    depends_on_memory=True,
)
