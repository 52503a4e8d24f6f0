"""Fits stochastic partitions in this process, which saves the second that starting another one takes."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

from gnnloom.pipeline.partition.model.hypergraph import vertex_weights
from gnnloom.pipeline.partition.native.run import NativeProblem
from gnnloom.pipeline.partition.stochastic.batch_partition import FULL, STOCHASTIC, FitRequest
from gnnloom.pipeline.partition.stochastic.fit import fit
from gnnloom.pipeline.partition.stochastic.merged_nets import MergedNets
from gnnloom.pipeline.shuffle.mapped_vectors import write_vector
from support.partitions import random_parts


def fit_here(problem: NativeProblem, nets: MergedNets | None, folder: Path) -> dict[str, Any]:
    """What ``fit_apart`` has another process do."""
    folder.mkdir(parents=True, exist_ok=True)
    graphs = problem.graph.artifact.path, problem.transpose.artifact.path
    FitRequest(*graphs, problem.options, problem.program, nets, problem.writer).write(folder)
    return fit(FitRequest.read(folder), folder)


def fit_by_hash(problem: NativeProblem, nets: MergedNets | None, folder: Path) -> dict[str, Any]:
    """Parts that depend on every byte of the nets, found in no time."""
    folder.mkdir(parents=True, exist_ok=True)
    seed = problem.options.seed
    if nets is not None:
        found = nets.load(vertex_weights(problem.graph, problem.options.weights))
        for array in (found.net_offset, found.pin, found.net_weight):
            assert array is not None
            seed = zlib.crc32(array.tobytes(), seed)
    n, parts = problem.graph.num_vertices, problem.options.parts
    write_vector(folder / FULL, [random_parts(n, parts, 0)])
    write_vector(folder / STOCHASTIC, [random_parts(n, parts, seed)])
    return {"seed": seed}
