"""Measures a graph, partitions it in the ways that suit it, and keeps the partition that sends the least."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.choice import CYCLE_PRESET, MOST_PINS, Way, choose
from gnnloom.pipeline.partition.cover_refinement import check_cover_memory, refine_cover
from gnnloom.pipeline.partition.measure.balance import fill_empty_parts, fill_only_choice
from gnnloom.pipeline.partition.model.hypergraph import net_matrices, row_nonzeros
from gnnloom.pipeline.partition.multilevel.clustering import cluster_vertices
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.heavy_first import assign_heavy_first
from gnnloom.pipeline.partition.multilevel.out_of_core import partition_out_of_core
from gnnloom.pipeline.partition.multilevel.part_files import count_labels, rows_sent
from gnnloom.pipeline.partition.multilevel.pieces import store_vector
from gnnloom.pipeline.partition.multilevel.refine import Refinement, refine_levels
from gnnloom.pipeline.partition.multilevel.store_hypergraph import store_hypergraph, store_rows
from gnnloom.pipeline.partition.multilevel.transpose_incidence import transpose_incidence
from gnnloom.pipeline.partition.native.mt_kahypar import MT_KAHYPAR
from gnnloom.pipeline.partition.native.native_models import fill_natively
from gnnloom.pipeline.partition.native.program import NativeProgram
from gnnloom.pipeline.partition.native.run import NativeProblem
from gnnloom.pipeline.partition.partitioner import PartitionProblem, Preset, Structure
from gnnloom.pipeline.partition.settings import DIRECTIONS, EXCHANGES
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.kernels import read_only

LOGGER = logging.getLogger("gnnloom.pipeline")
#: Rounds of label propagation, and average vertices that a cluster may weigh as much as.
_ROUNDS, _VERTICES_PER_CLUSTER = 2, 6
#: Bytes for the buffers of the sort that transposes a directed graph.
_SORT_BYTES = 128 << 20


def partition_as_chosen(problem: PartitionProblem, part: NDArray[np.int32]) -> dict[str, Any]:
    """Fill ``part`` in the ways that :func:`gnnloom.pipeline.partition.choice.choose` names for the graph.

    Args:
        part: (num_vertices,) int32, mapped from the file ``problem.part_path``.

    Returns:
        ``quality``: the level; ``chosen``: the way whose parts were kept; ``reason``: the property of the graph that
        decided; ``tried``: rows sent by each way, or rows and sums of a cover, if there were several.

    Raises:
        BudgetError: a way needs more memory than there is.
        PartitionerError: a native program failed or took too long.
    """
    options = problem.options
    if fill_only_choice(part, options.parts):
        return {"quality": options.preset, "chosen": "none", "reason": "only one partition has no empty part"}
    scratch = problem.scratch / "ways"
    scratch.mkdir(exist_ok=True)
    problem = replace(problem, scratch=scratch)
    matrices = net_matrices(problem.graph, problem.transpose, options.directions)
    num_pins = sum(matrix.nnz + matrix.num_vertices for matrix in matrices)
    structure = measure_structure(problem.graph, scratch / "structure") if num_pins <= MOST_PINS else None
    choice = choose(options.preset, num_pins, structure, options.exchange)
    # Passes that are asked for follow the kept parts.
    ways = [replace(way, cover_passes=0) for way in choice.ways] if options.cover_passes else choice.ways
    facts: dict[str, Any] = {"quality": options.preset, "reason": choice.reason}
    LOGGER.info("partition: %s; %s", " or ".join(map(str, ways)), choice.reason)
    if structure is None:
        (way,) = ways
        options = replace(options, method="multilevel", quality="", preset="flat" if way.passes else "auto")
        found = partition_out_of_core(replace(problem, options=options), part, way.passes)
        return facts | {"chosen": str(way)} | found
    hypergraph = store_hypergraph(
        scratch / "hypergraph", problem.graph, problem.transpose, problem.cluster, options.weighing, options.directions
    )
    best, tried = part.copy(), {}
    for way in ways:
        tried[str(way)] = _fill(problem, hypergraph, way, part)
        LOGGER.info("partition: %s sends %s rows", way, f"{tried[str(way)]:,}")
        if tried[str(way)] == min(tried.values()):
            best, facts["chosen"] = part.copy(), str(way)
    part[:] = best
    return facts | ({"tried": tried} if len(tried) > 1 else {})


def _fill(problem: PartitionProblem, hypergraph: DiskHypergraph, way: Way, part: NDArray[np.int32]) -> int:
    """Fill ``part`` in one way; returns the rows that it sends, or rows and sums if these are exchanged."""
    options = problem.options
    if way.native:
        fill_natively(_native(problem, *way.native), part)
    else:
        assign_heavy_first(hypergraph.vertex_weight, options.parts, options.seed, part)
    if way.passes:
        memory = working_memory(problem.cluster.memory)
        refinement = Refinement(options.parts, options.imbalance, options.seed, way.passes, memory, way.heat)
        scratch = problem.scratch / "refinement"
        refine_levels(hypergraph, part, problem.part_path, refinement, way.levels, scratch, problem.cluster)
        fill_empty_parts(part, hypergraph.vertex_weight, options.parts)
    if way.cycle:
        native = _native(problem, MT_KAHYPAR, MT_KAHYPAR.preset(CYCLE_PRESET))
        native.check_memory(hypergraph.num_pins)
        part[:] = native.native(hypergraph.load(), part)
    if options.exchange == EXCHANGES[0]:
        return rows_sent(hypergraph, problem.part_path, options.parts, problem.cluster)
    check_cover_memory(problem.graph, options)
    return refine_cover(problem, part, way.cover_passes)


def _native(problem: PartitionProblem, program: NativeProgram, preset: Preset) -> NativeProblem:
    """The problem for a native program."""
    # One thread: with several, presets other than the deterministic ones give other parts each time.
    threads = problem.options.threads if preset.name.startswith("deterministic") else 1
    # Only hypergraphs have directions.
    directions = problem.options.directions if program.model == "hypergraph" else DIRECTIONS[0]
    options = replace(
        problem.options, method=program.name, quality="", preset=preset.name, threads=threads, model=program.model,
        directions=directions,
    )  # fmt: skip
    return NativeProblem.of(replace(problem, options=options), program)


def measure_structure(graph: Graph, scratch: Path) -> Structure:
    """Measure a graph; takes about 0.3 processor seconds for a million pins, and memory for each vertex only.

    Args:
        graph: its rows are taken as nets, whatever direction is partitioned: both have the same clusters.
        scratch: folder for temporary files, which the caller removes.
    """
    nonzeros = np.concatenate([part for _, part in row_nonzeros(graph)])
    hypergraph = _hypergraph_of_rows(graph, np.maximum(nonzeros, 1), scratch)
    limit = _VERTICES_PER_CLUSTER * hypergraph.total_weight // graph.num_vertices
    label = cluster_vertices(hypergraph, limit, _ROUNDS)
    skew = float(nonzeros.max(initial=0)) / max(float(nonzeros.mean()), 1e-300)
    return Structure(graph.nnz + graph.num_vertices, pins_left(hypergraph, label), skew)


def pins_left(hypergraph: DiskHypergraph, label: NDArray[Any]) -> float:
    """The share of pins that remain if the vertices of a cluster become one; nets within one cluster vanish.

    Args:
        label: (num_vertices,) cluster of each vertex.
    """
    seen, before, after = np.full(int(label.max(initial=0)) + 1, -1, dtype=np.int64), 0, 0
    for block in hypergraph.nets.blocks():
        size, left = np.diff(block.offset), count_labels(block, read_only(label), seen)
        before, after = before + int(size[size > 1].sum()), after + int(left[left > 1].sum())
    return after / max(1, before)


def _hypergraph_of_rows(graph: Graph, weight: NDArray[np.int64], folder: Path) -> DiskHypergraph:
    here = InProcessCluster()
    nets = vertices = store_rows(folder / "rows", graph, here)
    # Not the stored transpose: a projection may not write an artifact.
    if not graph.symmetric:
        vertices = transpose_incidence(nets, graph.num_vertices, folder / "columns", _SORT_BYTES, here)
    path = store_vector(folder / "weight.npy", weight)
    return DiskHypergraph(nets, vertices, path, None, int(weight.sum()), int(weight.max(initial=0)))
