"""The out-of-core method: coarsen on disk, partition what fits in memory, and refine by streaming on the way back."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.model.hypergraph import Hypergraph, net_matrices
from gnnloom.pipeline.partition.multilevel.boundary_refine import BoundaryRefinement, refine_boundary
from gnnloom.pipeline.partition.multilevel.cluster_rounds import cluster_in_rounds
from gnnloom.pipeline.partition.multilevel.clustering import cluster_vertices
from gnnloom.pipeline.partition.multilevel.contraction import contract_nets
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import Clusters, DiskHypergraph, store_clusters
from gnnloom.pipeline.partition.multilevel.heavy_first import assign_heavy_first, deal_heavy_first
from gnnloom.pipeline.partition.multilevel.part_files import fill_empty_from_files, inherit_phase
from gnnloom.pipeline.partition.multilevel.pieces import run_pieces
from gnnloom.pipeline.partition.multilevel.refine import Refinement, refine
from gnnloom.pipeline.partition.multilevel.store_hypergraph import store_hypergraph
from gnnloom.pipeline.partition.native.guard import check_memory
from gnnloom.pipeline.partition.native.mt_kahypar import MT_KAHYPAR
from gnnloom.pipeline.partition.native.program import PartitionRequest
from gnnloom.pipeline.partition.native.run import native_partition
from gnnloom.pipeline.partition.partitioner import LEVEL_STEPS, LevelSteps, PartitionProblem
from gnnloom.pipeline.tasks.memory import BASE_MEMORY, working_memory
from gnnloom.storage.format.memory_map import create_part_vector
from gnnloom.storage.wording import counted

LOGGER = logging.getLogger("gnnloom.pipeline")

#: Heat of the refinement of random parts; passes over a partitioner's parts, which losses would only spoil.
_RANDOM_HEAT, _GOOD_PASSES = 1.5, 4
#: At each level, a cluster may weigh at most as much as this number of average vertices: slow coarsening makes better
#: cuts.
_VERTICES_PER_CLUSTER = 6
#: Coarsening ends at a level that keeps more than this share of the pins of the level before.  Preset ``auto`` would
# need many such levels until one fits in memory, so it gives up early; ``streaming`` uses all levels.
KEPT_SHARE = {"auto": 0.8, "streaming": 0.95}
#: Bytes for each vertex and each net of a level that one process clusters and refines.  Coarsening holds weights,
#: labels, cluster loads and the profiles of nets; refinement holds parts and the masks of 64 parts.  More parts take
#: more masks only if there is room.
_VERTEX_BYTES, _NET_BYTES = 60, 40
#: Bytes for each vertex in the client where tasks do this: the parts, which it maps.
_CLIENT_BYTES = 4
#: The native partitioner; its preset for the coarsest hypergraph, and for the boundary of every level.
_PROGRAM, _COARSE_PRESET, _BOUNDARY_PRESET = MT_KAHYPAR, "deterministic", "deterministic-quality"


def partition_out_of_core(problem: PartitionProblem, part: NDArray[np.int32], passes: int = 0) -> dict[str, Any]:
    """Fill ``part`` in O(vertices) of memory: only the mapped parts where tasks do the work.

    Coarsens until the hypergraph fits in the memory of a worker, partitions it with Mt-KaHyPar, and refines every level
    on the way back: all vertices by streaming, and vertices around the cut in memory.  Hypergraphs of power-law graphs
    hardly shrink; if a level shows that, refinement starts there from heavy-first random parts instead.

    Args:
        problem: the graph, the options, and where to work.
        part: (num_vertices,) int32, mapped from the file ``problem.part_path``.
        passes: number of refinement passes without losses; 0 for passes with losses, as long as they are worth their
            time.

    Returns:
        ``levels``: vertices, nets and pins of each level; ``start``: the method that partitioned the coarsest level.

    Raises:
        BudgetError: the arrays with a number for each vertex do not fit in memory.

    The multilevel scheme: Karypis, Kumar (VLSI Design 11(3), 2000); its steps name their own sources.
    """
    num_vertices, options = problem.graph.num_vertices, problem.options
    matrices = net_matrices(problem.graph, problem.transpose, options.directions)
    num_pins = sum(matrix.nnz + num_vertices for matrix in matrices)
    check_memory(
        f"method multilevel: {counted(num_vertices, 'vertex')}",
        out_of_core_memory(num_vertices, len(matrices), num_pins, problem.steps),
        options.memory_limit,
        "use method random or block, or more memory",
    )
    scratch = problem.scratch / "multilevel"
    scratch.mkdir(exist_ok=True)
    try:
        return _partition(replace(problem, scratch=scratch), part, passes)
    finally:
        shutil.rmtree(scratch)


def out_of_core_memory(num_vertices: int, num_directions: int, num_pins: int, steps: LevelSteps = LEVEL_STEPS) -> int:
    """Return the bytes that the method holds in one process, without the memory of the native partitioner."""
    one_process = (_VERTEX_BYTES + _NET_BYTES * num_directions) * num_vertices
    if max(num_pins, num_vertices) <= steps.few_pins:
        return BASE_MEMORY + one_process
    # Of the coarser levels, one process works on those with few pins; their nets have two pins or more.
    coarse = _VERTEX_BYTES * steps.few_pins + _NET_BYTES * steps.few_pins // 2
    return BASE_MEMORY + max(_CLIENT_BYTES * num_vertices, min(one_process, coarse))


def _partition(problem: PartitionProblem, part: NDArray[np.int32], passes: int) -> dict[str, Any]:
    options = problem.options
    memory = working_memory(problem.cluster.memory)
    finest = store_hypergraph(
        problem.scratch / "level-0",
        problem.graph,
        problem.transpose,
        problem.cluster,
        options.weighing,
        options.directions,
        problem.steps,
    )
    levels, clusters, fits = [finest], list[Clusters](), False
    if options.preset != "flat":
        levels, clusters, fits = _coarsen(finest, problem, memory)
    refinement = refinement_of(
        options.parts, options.imbalance, options.seed, memory, problem.steps, fits=fits, passes=passes
    )
    _uncoarsen(levels, clusters, fits, problem, refinement, part)
    fill_empty_from_files(finest, problem.part_path, options.parts, problem.cluster)
    return {
        "levels": [{"vertices": each.num_vertices, "nets": each.num_nets, "pins": each.num_pins} for each in levels],
        "start": _PROGRAM.name if fits and levels[-1].num_pins else "heavy-first",
    }


def _coarsen(
    finest: DiskHypergraph, problem: PartitionProblem, memory: int
) -> tuple[list[DiskHypergraph], list[Clusters], bool]:
    """Coarsen a hypergraph as far as it pays.

    Returns:
        The levels from the finest on; the clusters of each that are the vertices of the next; and whether the last fits
        in memory: one without nets always does.
    """
    levels, found, preset = [finest], list[Clusters](), problem.options.preset
    while (fine := levels[-1]).num_pins:
        if preset != "streaming" and fits_natively(fine.num_pins, fine.num_vertices, problem.options.parts, memory):
            break
        folder = problem.scratch / f"level-{len(levels)}"
        clusters = _cluster(fine, problem, folder)
        coarse = contract_nets(fine, clusters, folder, problem.cluster)
        num_pins = coarse.nets.num_ids
        LOGGER.info("coarsening: %s of %s pins remain", f"{num_pins:,}", f"{fine.num_pins:,}")
        # With fewer clusters than this per part, the coarsest hypergraph leaves no choice of balanced parts.
        too_few = clusters.num_clusters < problem.steps.clusters_per_part * problem.options.parts
        if too_few or num_pins > KEPT_SHARE[preset] * fine.num_pins:
            shutil.rmtree(folder)
            return levels, found, False
        levels.append(coarse.on_disk(memory, problem.cluster))
        found.append(clusters)
    return levels, found, True


def _cluster(hypergraph: DiskHypergraph, problem: PartitionProblem, folder: Path) -> Clusters:
    total, passes = hypergraph.total_weight, problem.steps.cluster_passes
    # The first bound keeps parts balanceable; the second makes a level at most about that many times smaller.
    limit = min(
        total // (problem.steps.clusters_per_part * problem.options.parts),
        _VERTICES_PER_CLUSTER * total // hypergraph.num_vertices,
    )
    if hypergraph.is_for_tasks:
        return cluster_in_rounds(hypergraph, limit, passes, folder, problem.cluster)
    return store_clusters(hypergraph, cluster_vertices(hypergraph, limit, passes), folder)


def fits_natively(num_pins: int, num_vertices: int, parts: int, memory: int) -> bool:
    """Whether the native partitioner fits in ``memory`` bytes for a hypergraph of this size."""
    return _PROGRAM.memory(_COARSE_PRESET, num_pins, num_vertices, parts) <= memory


def _uncoarsen(
    levels: list[DiskHypergraph],
    clusters: list[Clusters],
    fits: bool,
    problem: PartitionProblem,
    refinement: Refinement,
    part: NDArray[np.int32],
) -> None:
    """Partition the coarsest level and carry the parts down to ``part``, refining them at every level."""
    options = problem.options
    for number, hypergraph in reversed(list(enumerate(levels))):
        # The finest level refines the part vector itself; others use a file of their own, which tasks map as well.
        path = _part_path(problem, number)
        here = part if number == 0 else create_part_vector(path, hypergraph.num_vertices)
        if number < len(clusters):
            coarse_path = _part_path(problem, number + 1)
            run_pieces(inherit_phase(clusters[number], coarse_path, path, hypergraph), problem.cluster)
        elif fits:
            here[:] = _native(problem, hypergraph.load(), _COARSE_PRESET)
        # Only at the coarsest level, which has no coarser parts to inherit.
        elif hypergraph.is_for_tasks:
            deal_heavy_first(
                hypergraph, path, options.parts, options.seed, problem.scratch / "classes", problem.cluster
            )
        else:
            assign_heavy_first(hypergraph.vertex_weight, options.parts, options.seed, here)
        # Streaming sees all vertices but one move at a time; the native partitioner sees only the boundary, but whole.
        refine(hypergraph, here, path, refinement, problem.scratch / "masks", problem.cluster)
        # A single level was partitioned in memory as a whole.
        if fits and len(levels) > 1:
            _refine_boundary(hypergraph, path, problem, refinement.memory)


def refinement_of(
    parts: int, imbalance: float, seed: int, memory: int, steps: LevelSteps, *, fits: bool, passes: int = 0
) -> Refinement:
    """Options of the refinement at every level.

    Args:
        memory: bytes for the buffers of a worker.
        steps: number of passes over random parts.
        fits: whether the native partitioner made the first parts.
        passes: number of passes without losses; 0 for passes as long as they are worth their time.
    """
    most, heat = (passes or _GOOD_PASSES, 0.0) if passes or fits else (steps.random_passes, _RANDOM_HEAT)
    return Refinement(parts, imbalance, seed, most, memory, heat)


def _part_path(problem: PartitionProblem, number: int) -> Path:
    """File of the parts of a level."""
    return problem.part_path if number == 0 else problem.scratch / f"level-{number}" / "part.npy"


def _refine_boundary(hypergraph: DiskHypergraph, part_path: Path, problem: PartitionProblem, memory: int) -> None:
    refinement = BoundaryRefinement(
        fits=lambda num_pins, num_vertices: fits_natively(num_pins, num_vertices, problem.options.parts, memory),
        improve=lambda small, given: _native(problem, small, _BOUNDARY_PRESET, given),
        scratch=problem.scratch,
    )
    refine_boundary(hypergraph, part_path, problem.options.parts, refinement, problem.cluster)


def _native(
    problem: PartitionProblem, hypergraph: Hypergraph, preset: str, given: NDArray[np.int32] | None = None
) -> NDArray[np.int32]:
    options = problem.options
    request = replace(PartitionRequest.of(options), preset=preset, memory_limit=None, improve=int(given is not None))
    return native_partition(hypergraph, _PROGRAM, request, problem.scratch, options.time_limit, given)
