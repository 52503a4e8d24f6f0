"""Mt-KaHyPar: shared-memory multilevel partitioning, deterministic for any number of threads."""

from __future__ import annotations

from pathlib import Path

import mtkahypar
import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partitioners.request import PartitionRequest


def partition(request: PartitionRequest, hypergraph_path: Path) -> NDArray[np.int32]:
    """Partition a hypergraph file; runs in the child process.

    The deterministic preset gives the same parts for the same seed whatever the number of threads.

    Gottesbüren, Heuer, Sanders, Schlag (ALENEX 2021); Gottesbüren, Hamann, Sanders, Wagner (2022).
    """
    library = mtkahypar.initialize(request.threads, print_warnings=False)
    mtkahypar.set_seed(request.seed)
    context = library.context_from_preset(mtkahypar.PresetType.DETERMINISTIC)
    context.set_partitioning_parameters(request.parts, request.imbalance, mtkahypar.Objective.KM1)
    hypergraph = library.hypergraph_from_file(str(hypergraph_path), context, mtkahypar.FileFormat.HMETIS)
    return np.asarray(hypergraph.partition(context).get_partition(), dtype=np.int32)
