"""METIS: fast multilevel graph partitioning by the edge cut, which ignores how often a row is really sent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.native.graph_arrays import load_graph
from gnnloom.pipeline.partition.native.native_partitioner import native_partitioner
from gnnloom.pipeline.partition.native.program import GRAPH, NativeProgram, PartitionRequest
from gnnloom.pipeline.partition.partitioner import Preset

METIS = NativeProgram(
    "metis", "pymetis", __name__, (Preset(seconds=1.0, parts_power=0.3),), 60, "graph", takes_arrays=True
)

PARTITIONER = native_partitioner(
    METIS,
    order=30,
    help_line="Multilevel partitioning by the edge cut, fast (METIS).",
    models=("graph",),
    is_baseline=True,
)


def partition(request: PartitionRequest, folder: Path) -> NDArray[np.int32]:
    """Partition a graph k-way; runs in the child process.  METIS counts the imbalance in thousandths, at least 1.

    Karypis, Kumar (J. Parallel Distrib. Comput. 48(1), 1998).
    """
    import pymetis  # noqa: PLC0415 - only the child process loads native code

    offset, neighbor, vertex_weight, edge_weight = load_graph(folder / GRAPH)
    options = pymetis.Options()
    options.seed = request.seed
    # Rounded down, to stay within the requested imbalance if METIS can express it.
    options.ufactor = max(1, int(1000 * request.imbalance))
    found = pymetis.part_graph(
        request.parts,
        xadj=offset,
        adjncy=neighbor,
        vweights=vertex_weight,
        eweights=edge_weight,
        recursive=False,
        options=options,
    )
    return np.asarray(found[1], dtype=np.int32)
