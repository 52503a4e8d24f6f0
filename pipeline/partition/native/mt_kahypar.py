"""Mt-KaHyPar: shared-memory multilevel partitioning, deterministic for any number of threads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.native.program import GIVEN, GRAPH, HYPERGRAPH, NativeProgram, PartitionRequest
from gnnloom.pipeline.partition.partitioner import Preset
from gnnloom.storage.disk.numpy_files import load_array

#: Bytes for each vertex and part in the cache of gains; ``large-k`` recomputes gains instead.
_GAIN = 4

MT_KAHYPAR = NativeProgram(
    "mtkahypar",
    "mtkahypar",
    __name__,
    (
        Preset("deterministic", "same parts for any number of threads", 60.0, 0.5, True, _GAIN),
        Preset("deterministic-quality", "deterministic, with flow-based refinement", 150.0, 0.5, True, _GAIN),
        Preset("default", "faster; parts depend on the timing of threads", 25.0, 0.4, True, _GAIN),
        Preset("quality", "default, with flow-based refinement", 100.0, 0.5, True, _GAIN),
        Preset("highest-quality", "coarsens one vertex pair at a time; slowest", 300.0, 0.5, True, _GAIN),
        Preset("large-k", "for hundreds of parts or more; the fastest", 15.0, 0.2),
    ),
    bytes_per_pin=141,
)


def partition(request: PartitionRequest, folder: Path) -> NDArray[np.int32]:
    """Partition a hypergraph by its connectivity or a graph by its cut, or improve a partition of a hypergraph.

    Runs in the child process.  The deterministic presets give the same parts for the same seed, whatever the number
    of threads.

    Gottesbüren, Heuer, Sanders, Schlag (ALENEX 2021); Gottesbüren, Hamann, Sanders, Wagner (2022).
    """
    import mtkahypar  # noqa: PLC0415 - only the child process loads native code

    library = mtkahypar.initialize(request.threads, print_warnings=False)
    mtkahypar.set_seed(request.seed)
    preset = request.preset.upper().replace("-", "_") or "DETERMINISTIC"
    context = library.context_from_preset(mtkahypar.PresetType.__members__[preset])
    objective = mtkahypar.Objective.CUT if request.graph else mtkahypar.Objective.KM1
    context.set_partitioning_parameters(request.parts, request.imbalance, objective)
    if request.graph:
        problem = library.graph_from_file(str(folder / GRAPH), context, mtkahypar.FileFormat.METIS)
    else:
        problem = library.hypergraph_from_file(str(folder / HYPERGRAPH), context, mtkahypar.FileFormat.HMETIS)
    if request.improve:
        given = load_array(folder / GIVEN)
        found = problem.create_partitioned_hypergraph(context, request.parts, given)
        found.improve_partition(context, request.improve)
    else:
        found = problem.partition(context)
    return np.asarray(found.get_partition(), dtype=np.int32)
