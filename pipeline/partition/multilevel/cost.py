"""The presets of the out-of-core method and what they cost; importing this loads no implementation."""

from __future__ import annotations

from gnnloom.pipeline.partition.native.mt_kahypar import MT_KAHYPAR
from gnnloom.pipeline.partition.partitioner import START_SECONDS, MethodCost, PartitionWorkload, Preset
from gnnloom.pipeline.tasks.memory import working_memory

MULTILEVEL_PRESETS = (
    Preset("auto", "coarsens on disk until the hypergraph fits Mt-KaHyPar in a worker's memory", 3.5, 0.3),
    Preset("streaming", "coarsens as far as it can, without Mt-KaHyPar", 3.5, 0.3),
    Preset("flat", "only refines random parts", 2.0, 0.3),
)
#: Two passes over random parts, which ``--quality fast`` makes: measured on R-MAT.
FEW_PASSES = Preset(seconds=0.4, parts_power=0.3)
#: Partitions what ``auto`` has coarsened.
_COARSEST = MT_KAHYPAR.preset("deterministic")
#: Bytes on disk for each pin: the nets of all levels, and what sorts them.
_DISK_BYTES_PER_PIN = 24


def multilevel_cost(workload: PartitionWorkload, preset: Preset) -> MethodCost:
    """Resources that a preset of the out-of-core method takes for a workload."""
    from gnnloom.pipeline.partition.multilevel.out_of_core import out_of_core_memory  # noqa: PLC0415

    memory = out_of_core_memory(workload.num_vertices, workload.num_directions, workload.num_pins)
    seconds = START_SECONDS + preset.cpu_seconds(workload.num_pins, workload.parts)
    if preset.name == "auto":
        whole = MT_KAHYPAR.memory(_COARSEST.name, workload.num_pins, workload.num_vertices, workload.parts)
        room = working_memory(workload.worker_memory)
        memory += min(whole, room)
        # Power-law graphs, for which all times are stated, do not shrink until they fit.
        if whole <= room:
            seconds += _COARSEST.cpu_seconds(workload.num_pins, workload.parts)
    return MethodCost(memory, _DISK_BYTES_PER_PIN * workload.num_pins, seconds)
