"""Chooses among the other methods by the graph: what ``--quality`` means, and the default."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gnnloom.pipeline.partition.choice import LEVELS, MOST_PINS, Way, choose
from gnnloom.pipeline.partition.cover_cost import with_cover_passes
from gnnloom.pipeline.partition.multilevel.cost import FEW_PASSES, MULTILEVEL_PRESETS, multilevel_cost
from gnnloom.pipeline.partition.partitioner import (
    START_SECONDS,
    MethodCost,
    Partitioner,
    PartitionProblem,
    PartitionWorkload,
    Preset,
)
from gnnloom.pipeline.partition.settings import QUALITY_METHOD

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Bytes on disk for each pin: the nets of both directions of the incidence, twice while a graph is measured.
_DISK_BYTES_PER_PIN = 24
#: The same for each level of clusters, and what sorts them.
_LEVEL_BYTES_PER_PIN = 16
_HELP = {
    "balanced": "near the best partition, in a fraction of the time of best",
    "fast": "the quickest method that suits the graph",
    "best": "several slow methods, keeping the best partition; above 16.8 million pins, the same as balanced",
}
#: How often the parts that a level makes of the same graph have changed.
_REVISIONS = {"balanced": 1, "fast": 2, "best": 1}


def _fill(problem: PartitionProblem, part: NDArray[np.int32]) -> dict[str, Any]:
    from gnnloom.pipeline.partition.multilevel.ways import partition_as_chosen  # noqa: PLC0415 - a light descriptor

    return partition_as_chosen(problem, part)


def _cost(workload: PartitionWorkload, preset: Preset) -> MethodCost:
    choice = choose(preset.name, workload.num_pins, workload.structure, workload.exchange)
    ways = choice.ways if not workload.cover_passes else [replace(way, cover_passes=0) for way in choice.ways]
    costs = [_cost_of_way(workload, way) for way in ways]
    return MethodCost(
        max(cost.memory for cost in costs),
        max(cost.disk for cost in costs) + _DISK_BYTES_PER_PIN * workload.num_pins,
        sum(cost.cpu_seconds for cost in costs),
        f"{' or '.join(map(str, ways))}; {choice.reason}",
    )


def _cost_of_way(workload: PartitionWorkload, way: Way) -> MethodCost:
    if workload.num_pins > MOST_PINS:
        return multilevel_cost(workload, FEW_PASSES if way.passes else MULTILEVEL_PRESETS[0])
    # Options need no methods.
    from gnnloom.pipeline.partition.multilevel.out_of_core import out_of_core_memory  # noqa: PLC0415
    from gnnloom.pipeline.partition.native.native_models import native_cost  # noqa: PLC0415

    state = out_of_core_memory(workload.num_vertices, workload.num_directions, workload.num_pins)
    # Programs that offer one model partition that one.
    costs = [native_cost(program, replace(workload, model=program.model), preset) for program, preset in way.programs]
    cost = MethodCost(
        max([state, *(cost.memory for cost in costs)]),
        max([way.levels * _LEVEL_BYTES_PER_PIN * workload.num_pins, *(cost.disk for cost in costs)]),
        START_SECONDS + way.cpu_seconds(replace(workload, cover_passes=0)),
    )
    return with_cover_passes(cost, replace(workload, cover_passes=way.cover_passes))


PARTITIONER = Partitioner(
    QUALITY_METHOD,
    order=5,
    help="Chooses one of the other methods for the graph; its presets are the levels of --quality.",
    fill=_fill,
    cost=_cost,
    presets=tuple(Preset(level, _HELP[level], revision=_REVISIONS.get(level, 0)) for level in LEVELS),
    weighs_directions=True,
    depends_on_memory=True,
)
