"""Partitions a graph in the ways that were chosen for it, and keeps the partition that sends the fewest rows."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.choice import CYCLE_PRESET, MOST_PINS, Way, choose
from gnnloom.pipeline.partition.measure.balance import fill_empty_parts, fill_only_choice
from gnnloom.pipeline.partition.model.hypergraph import net_matrices
from gnnloom.pipeline.partition.multilevel.cut import rows_sent
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.heavy_first import assign_heavy_first
from gnnloom.pipeline.partition.multilevel.measure import measure_structure
from gnnloom.pipeline.partition.multilevel.out_of_core import partition_out_of_core
from gnnloom.pipeline.partition.multilevel.refine import Refinement
from gnnloom.pipeline.partition.multilevel.refine_levels import refine_levels
from gnnloom.pipeline.partition.multilevel.store_hypergraph import store_hypergraph
from gnnloom.pipeline.partition.native.mt_kahypar import MT_KAHYPAR
from gnnloom.pipeline.partition.native.native_models import fill_natively
from gnnloom.pipeline.partition.native.native_problem import NativeProblem
from gnnloom.pipeline.partition.problem import PartitionProblem
from gnnloom.pipeline.tasks.memory import working_memory

LOGGER = logging.getLogger("gnnloom.pipeline")


def partition_as_chosen(problem: PartitionProblem, part: NDArray[np.int32]) -> dict[str, Any]:
    """Fill ``part`` in the ways that :func:`gnnloom.pipeline.partition.choice.choose` names for the graph.

    Args:
        part: (num_vertices,) int32, mapped from the file ``problem.part_path``.

    Returns:
        ``quality``: the level; ``chosen``: the way whose parts were kept; ``reason``: what about the graph decided;
        ``tried``: rows sent by each way, if there were several.

    Raises:
        BudgetError: a way needs more memory than there is.
        PartitionerError: Mt-KaHyPar failed or took too long.
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
    choice = choose(options.preset, num_pins, structure)
    facts: dict[str, Any] = {"quality": options.preset, "reason": choice.reason}
    LOGGER.info("partition: %s; %s", " or ".join(map(str, choice.ways)), choice.reason)
    if structure is None:
        return facts | {"chosen": str(choice.ways[0])} | _out_of_core(problem, part)
    hypergraph = store_hypergraph(
        scratch / "hypergraph", problem.graph, problem.transpose, problem.cluster, options.weights, options.directions
    )
    best, tried = part.copy(), {}
    for way in choice.ways:
        _fill(problem, hypergraph, way, part)
        tried[str(way)] = rows_sent(hypergraph, problem.part_path, options.parts, problem.cluster)
        LOGGER.info("partition: %s sends %s rows", way, f"{tried[str(way)]:,}")
        if tried[str(way)] == min(tried.values()):
            best, facts["chosen"] = part.copy(), str(way)
    part[:] = best
    return facts | ({"tried": tried} if len(tried) > 1 else {})


def _out_of_core(problem: PartitionProblem, part: NDArray[np.int32]) -> dict[str, Any]:
    options = replace(problem.options, method="multilevel", quality="", preset="auto")
    return partition_out_of_core(replace(problem, options=options), part)


def _fill(problem: PartitionProblem, hypergraph: DiskHypergraph, way: Way, part: NDArray[np.int32]) -> None:
    """Fill ``part`` in one way."""
    options = problem.options
    if way.is_native:
        fill_natively(_native(problem, way.start), part)
    else:
        assign_heavy_first(hypergraph.vertex_weight, options.parts, options.seed, part)
    if way.passes:
        memory = working_memory(problem.cluster.memory)
        refinement = Refinement(options.parts, options.imbalance, options.seed, way.passes, memory, way.heat)
        scratch = problem.scratch / "refinement"
        refine_levels(hypergraph, part, problem.part_path, refinement, way.levels, scratch, problem.cluster)
        fill_empty_parts(part, hypergraph.vertex_weight, options.parts)
    if way.cycle:
        native = _native(problem, CYCLE_PRESET)
        native.check_memory(hypergraph.num_pins)
        part[:] = native.native(hypergraph.load(), part)


def _native(problem: PartitionProblem, preset: str) -> NativeProblem:
    """The problem for a preset of Mt-KaHyPar."""
    # One thread: with several, presets other than the deterministic ones give other parts each time.
    threads = problem.options.threads if preset.startswith("deterministic") else 1
    options = replace(problem.options, method=MT_KAHYPAR.name, quality="", preset=preset, threads=threads)
    return NativeProblem.of(replace(problem, options=options), MT_KAHYPAR)
