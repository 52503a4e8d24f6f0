"""Mt-KaHyPar: shared-memory multilevel partitioning, deterministic for any number of threads."""

from __future__ import annotations

from pathlib import Path

import mtkahypar
import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.native.request import GIVEN, GRAPH, HYPERGRAPH, PartitionRequest


def partition(request: PartitionRequest, folder: Path) -> NDArray[np.int32]:
    """Partition a hypergraph by its connectivity, or a graph by its cut, or improve a partition of the former.

    Runs in the child process.

    The deterministic presets give the same parts for the same seed whatever the number of threads.

    Gottesbüren, Heuer, Sanders, Schlag (ALENEX 2021); Gottesbüren, Hamann, Sanders, Wagner (2022).
    """
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
        given = np.load(folder / GIVEN, allow_pickle=False)
        found = problem.create_partitioned_hypergraph(context, request.parts, given)
        found.improve_partition(context, request.improve)
    else:
        found = problem.partition(context)
    return np.asarray(found.get_partition(), dtype=np.int32)
