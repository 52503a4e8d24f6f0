"""KaMinPar: fast multilevel graph partitioning by the edge cut, for graphs with more entries than METIS can count."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.native.program import GRAPH, NativeProgram, PartitionRequest
from gnnloom.pipeline.partition.partitioner import Preset

#: Preset that uses all threads; the others run on one, because only then are the parts the same every time.
_PARALLEL = "parallel"
#: Presets that compress the graph in memory.
_COMPRESSED = "terapart"

KAMINPAR = NativeProgram(
    "kaminpar",
    "kaminpar",
    __name__,
    (
        Preset("default", "one thread", 0.9, 0.15),
        Preset("strong", "one thread, with flow-based refinement", 1.6, 0.6),
        Preset(_COMPRESSED, "one thread, with the graph compressed in memory", 1.5, 0.15),
        Preset(_PARALLEL, "default on several threads; parts depend on the timing of threads", 1.0, 0.15),
    ),
    bytes_per_pin=50,
    model="graph",
    limit=(1 << 62) - 1,
)


def partition(request: PartitionRequest, folder: Path) -> NDArray[np.int32]:
    """Partition a graph by the edge cut; runs in the child process.

    Gottesbüren, Heuer, Sanders, Schulz, Seemaier (ESA 2021).
    """
    import kaminpar  # noqa: PLC0415 - only the child process loads native code

    kaminpar.reseed(request.seed)
    is_parallel = request.preset == _PARALLEL
    context = kaminpar.default_context() if is_parallel else kaminpar.context_by_name(request.preset or "default")
    program = kaminpar.KaMinPar(request.threads if is_parallel else 1, context)
    metis, compress = kaminpar.GraphFileFormat.METIS, request.preset == _COMPRESSED
    graph = kaminpar.load_graph(str(folder / GRAPH), metis, compress)
    return np.array(program.compute_partition(graph, request.parts, request.imbalance), dtype=np.int32)
