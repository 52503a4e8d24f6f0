"""METIS: multilevel graph partitioning by the edge cut, fast, and blind to how often a row is really sent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pymetis
from numpy.typing import NDArray

from gnnloom.pipeline.partition.native.graph_file import load_graph
from gnnloom.pipeline.partition.native.request import GRAPH, PartitionRequest


def partition(request: PartitionRequest, folder: Path) -> NDArray[np.int32]:
    """Partition a graph k-way; runs in the child process.  The imbalance is cut to a per mille, at least 1.

    Karypis, Kumar (J. Parallel Distrib. Comput. 48(1), 1998).
    """
    offset, neighbor, vertex_weight, edge_weight = load_graph(folder / GRAPH)
    options = pymetis.Options()
    options.seed = request.seed
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
