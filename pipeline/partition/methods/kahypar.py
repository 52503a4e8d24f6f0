"""KaHyPar, recursive or direct k-way.

KaHyPar is optional and licensed under the GPL; it runs only as a separate program, in the child process.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.native.native_partitioner import native_partitioner
from gnnloom.pipeline.partition.native.program import HYPERGRAPH, NativeProgram, PartitionRequest
from gnnloom.pipeline.partition.partitioner import Preset

KAHYPAR = NativeProgram(
    "kahypar",
    "kahypar",
    __name__,
    (
        Preset("recursive", "by recursive bisection", 150.0, 0.3),
        Preset("direct", "direct k-way; slower", 600.0, 0.5),
    ),
    bytes_per_pin=260,
)

#: Settings from KaHyPar's documented options, reduced so that power-law graphs finish: coarsening along heavy nets, a
#: flat pool of initial partitions, short local searches, no communities and no flows.  All keys are required: KaHyPar
#: hangs without ``i-runs`` and exits on values that it does not know.
_COMMON = {
    "objective": "km1",
    # Replaced by the seed of the request below.
    "seed": "-1",
    "cmaxnet": "1000",
    "vcycles": "0",
    "p-use-sparsifier": "false",
    "p-detect-communities": "false",
    "c-type": "heavy_lazy",
    "c-s": "3.25",
    "c-t": "160",
    "c-rating-score": "heavy_edge",
    "c-rating-use-communities": "false",
    "c-rating-heavy_node_penalty": "multiplicative",
    "c-rating-acceptance-criterion": "best",
    "c-fixed-vertex-acceptance-criterion": "free_vertex_only",
    "i-technique": "flat",
    "i-algo": "pool",
    "i-runs": "10",
    "i-bp-algorithm": "worst_fit",
    "i-bp-heuristic-prepacking": "false",
    "i-bp-early-restart": "true",
    "i-bp-late-restart": "true",
    "i-r-type": "twoway_fm",
    "i-r-runs": "1",
    "i-r-fm-stop": "simple",
    "i-r-fm-stop-i": "50",
    "r-runs": "1",
    "r-fm-stop": "simple",
    "r-fm-stop-i": "100",
    "r-fm-stop-alpha": "1",
}
_RECURSIVE = {"mode": "recursive", "i-mode": "direct", "r-type": "twoway_fm"}
#: Direct k-way partitions the coarsest hypergraph by a recursive bisection, which the keys ``i-c-*`` configure.
_DIRECT = {
    "mode": "direct",
    "i-mode": "recursive",
    "i-c-type": "heavy_lazy",
    "i-c-s": "3.25",
    "i-c-t": "160",
    "i-c-rating-score": "heavy_edge",
    "i-c-rating-use-communities": "false",
    "i-c-rating-heavy_node_penalty": "multiplicative",
    "i-c-rating-acceptance-criterion": "best",
    "i-c-fixed-vertex-acceptance-criterion": "free_vertex_only",
    "r-type": "kway_fm_km1",
}
_SETTINGS = {"recursive": _COMMON | _RECURSIVE, "direct": _COMMON | _DIRECT}

PARTITIONER = native_partitioner(
    KAHYPAR,
    order=20,
    help_line="Sequential multilevel partitioning in memory (KaHyPar, GPL).",
    models=("hypergraph", "stochastic"),
)


def partition(request: PartitionRequest, folder: Path) -> NDArray[np.int32]:
    """Partition a hypergraph file; runs in the child process.

    Schlag et al. (ALENEX 2016), Akhremtsev et al. (ALENEX 2017), Schlag (dissertation, KIT 2020).
    """
    import kahypar  # noqa: PLC0415 - only the child process loads native code

    settings_path = folder / "preset.ini"
    settings = _SETTINGS[request.preset or "recursive"]
    # The mode comes first, because the meaning of other keys depends on it.
    keys = sorted(settings, key=lambda name: name != "mode")
    settings_path.write_text("".join(f"{name}={settings[name]}\n" for name in keys), encoding="ascii")
    context = kahypar.Context()
    context.loadINIconfiguration(str(settings_path))
    context.setK(request.parts)
    context.setEpsilon(request.imbalance)
    context.setSeed(request.seed)
    context.suppressOutput(True)
    hypergraph = kahypar.createHypergraphFromFile(str(folder / HYPERGRAPH), request.parts)
    kahypar.partition(hypergraph, context)
    return np.fromiter(map(hypergraph.blockID, range(hypergraph.numNodes())), np.int32, hypergraph.numNodes())
