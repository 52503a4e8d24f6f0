"""KaHyPar by recursive bisection.

KaHyPar is licensed under the GPL and optional; it only ever runs as a program of its own, in the child process.
"""

from __future__ import annotations

from pathlib import Path

import kahypar
import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partitioners.request import PartitionRequest

#: Our preset, from KaHyPar's documented options: recursive bisection on the connectivity metric, with
#: coarsening along heavy nets and short two-way local searches, so that power-law graphs finish.
#: All of these are needed: KaHyPar hangs without ``i-runs`` and exits on values that it does not know.
PRESET = {
    "mode": "recursive",
    "objective": "km1",
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
    "i-mode": "direct",
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
    "r-type": "twoway_fm",
    "r-runs": "1",
    "r-fm-stop": "simple",
    "r-fm-stop-i": "100",
    "r-fm-stop-alpha": "1",
}


def partition(request: PartitionRequest, hypergraph_path: Path) -> NDArray[np.int32]:
    """Partition a hypergraph file; runs in the child process.

    Schlag et al. (ALENEX 2016), Schlag (dissertation, KIT 2020).
    """
    preset_path = hypergraph_path.with_name("preset.ini")
    preset_path.write_text("".join(f"{name}={value}\n" for name, value in PRESET.items()), encoding="ascii")
    context = kahypar.Context()
    context.loadINIconfiguration(str(preset_path))
    context.setK(request.parts)
    context.setEpsilon(request.imbalance)
    context.setSeed(request.seed)
    context.suppressOutput(True)
    hypergraph = kahypar.createHypergraphFromFile(str(hypergraph_path), request.parts)
    kahypar.partition(hypergraph, context)
    return np.fromiter(map(hypergraph.blockID, range(hypergraph.numNodes())), np.int32, hypergraph.numNodes())
