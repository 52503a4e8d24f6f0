"""The out-of-core method: coarsen on disk, partition what fits, refine in streams on the way back."""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.partition.balance import fill_empty_parts
from gnnloom.pipeline.partition.hypergraph import Hypergraph, net_matrices
from gnnloom.pipeline.partition.multilevel.boundary_refine import Band, refine_band
from gnnloom.pipeline.partition.multilevel.clustering import cluster_vertices
from gnnloom.pipeline.partition.multilevel.contraction import contract_nets
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph, store_hypergraph
from gnnloom.pipeline.partition.multilevel.placement import place_heavy_first
from gnnloom.pipeline.partition.multilevel.refine import Refinement, refine
from gnnloom.pipeline.partition.native.budget import check_memory, native_memory
from gnnloom.pipeline.partition.native.mt_kahypar import MT_KAHYPAR
from gnnloom.pipeline.partition.native.request import PartitionRequest
from gnnloom.pipeline.partition.native.run import native_partition
from gnnloom.pipeline.partition.problem import PartitionProblem
from gnnloom.pipeline.tasks.memory import BASE_MEMORY, working_memory
from gnnloom.storage.format.memory_map import create_part_vector

LOGGER = logging.getLogger("gnnloom.pipeline")

#: Passes of refinement at each level and their heat: from random parts, and from those of a partitioner.
_FROM_RANDOM, _FROM_GOOD = (16, 1.5), (4, 0.0)
#: Rounds of label propagation at each level.
_ROUNDS = 5
#: A cluster may weigh one part in this many, and at one level this many vertices: slow coarsening makes better cuts.
_CLUSTERS_PER_PART, _VERTICES_PER_CLUSTER = 20, 6
#: A level that keeps more than this share of the pins of the one before is not worth its time, and ends the
#: coarsening: the first, where many such levels would be needed to fit the memory; the second, where all are wanted.
_TOO_MUCH = {"auto": 0.8, "streaming": 0.95}
#: Bytes for each vertex and each net: weights, labels and cluster loads, and the profiles of nets, while it coarsens;
#: parts and the masks of 64 parts while it refines.  More parts take more masks only where there is room.
_VERTEX_BYTES, _NET_BYTES = 60, 40
#: Partitions the coarsest hypergraph, and improves the bands around the cut of all.
_PROGRAM, _COARSE_PRESET, _BAND_PRESET = MT_KAHYPAR, "deterministic", "deterministic-quality"


@dataclass(frozen=True)
class _Level:
    """A hypergraph and, except on the finest, where the finer one's vertices went.

    Attributes:
        label: (num_vertices of the finer level,) the vertex here of each vertex there.
    """

    hypergraph: DiskHypergraph
    label: NDArray[Any] | None


def partition_out_of_core(problem: PartitionProblem, part: NDArray[np.int32]) -> dict[str, Any]:
    """Fill ``part``, which the file ``problem.part_path`` backs, holding O(vertices) in memory.

    Coarsens until the hypergraph fits the memory of a worker, partitions it with Mt-KaHyPar, and refines on every
    level on the way back: in streams, and what lies around the cut in memory.  Hypergraphs of power-law graphs hardly
    shrink: where a level shows that, refinement starts there from heavy-first random parts instead.

    Returns:
        ``levels``: vertices, nets and pins of each; ``start``: what partitioned the coarsest.

    Raises:
        BudgetError: not even what grows with the vertices fits the memory.
    """
    num_vertices, options = problem.graph.num_vertices, problem.options
    check_memory(
        f"method multilevel: {num_vertices:,} vertices",
        out_of_core_memory(num_vertices, len(net_matrices(problem.graph, problem.transpose, options.directions))),
        options.memory_limit,
        "use method random or block, or more memory",
    )
    scratch = problem.scratch / "multilevel"
    scratch.mkdir(exist_ok=True)
    try:
        return _partition(replace(problem, scratch=scratch), part)
    finally:
        shutil.rmtree(scratch)


def out_of_core_memory(num_vertices: int, num_directions: int) -> int:
    """Bytes that the method holds in one process, beside what it gives to a native partitioner."""
    return BASE_MEMORY + (_VERTEX_BYTES + _NET_BYTES * num_directions) * num_vertices


def _partition(problem: PartitionProblem, part: NDArray[np.int32]) -> dict[str, Any]:
    options = problem.options
    memory = working_memory(problem.cluster.memory)
    finest = store_hypergraph(
        problem.scratch / "level-0", problem.graph, problem.transpose, options.weights, options.directions
    )
    levels, fits = [_Level(finest, None)], False
    if options.preset != "flat":
        levels, fits = _coarsen(levels[0], problem, memory)
    _uncoarsen(levels, fits, problem, memory, part)
    fill_empty_parts(part, finest.vertex_weight, options.parts)
    return {
        "levels": [_describe(level.hypergraph) for level in levels],
        "start": _PROGRAM.name if fits and levels[-1].hypergraph.num_pins else "heavy-first",
    }


def _coarsen(finest: _Level, problem: PartitionProblem, memory: int) -> tuple[list[_Level], bool]:
    """Levels from the finest on, and whether the last one fits the memory; one without nets always does."""
    levels, preset = [finest], problem.options.preset
    while levels[-1].hypergraph.num_pins and (preset == "streaming" or not _fits(levels[-1], problem, memory)):
        fine = levels[-1].hypergraph
        label = cluster_vertices(fine, _cluster_limit(fine, problem.options.parts), _ROUNDS)
        folder = problem.scratch / f"level-{len(levels)}"
        coarse = contract_nets(fine, label, folder, problem.cluster)
        num_pins = coarse.nets.num_ids
        LOGGER.info("coarsening: %s of %s pins", f"{num_pins:,}", f"{fine.num_pins:,}")
        too_few = len(coarse.vertex_weight) < _CLUSTERS_PER_PART * problem.options.parts
        if too_few or num_pins > _TOO_MUCH[preset] * fine.num_pins:
            shutil.rmtree(folder)
            return levels, False
        levels.append(_Level(coarse.on_disk(memory // 2), label))
    return levels, True


def _cluster_limit(hypergraph: DiskHypergraph, parts: int) -> int:
    total = int(hypergraph.vertex_weight.sum())
    return min(total // (_CLUSTERS_PER_PART * parts), _VERTICES_PER_CLUSTER * total // hypergraph.num_vertices)


def _fits(level: _Level, problem: PartitionProblem, memory: int) -> bool:
    return _needed(level.hypergraph.num_pins, level.hypergraph.num_vertices, problem) <= memory


def _needed(num_pins: int, num_vertices: int, problem: PartitionProblem) -> int:
    return native_memory(_PROGRAM, _COARSE_PRESET, num_pins, num_vertices, problem.options.parts)


def _uncoarsen(
    levels: list[_Level], fits: bool, problem: PartitionProblem, memory: int, part: NDArray[np.int32]
) -> None:
    """Partition the coarsest level and carry the parts down to ``part``, refined at every level."""
    options = problem.options
    passes, heat = _FROM_GOOD if fits else _FROM_RANDOM
    refinement = Refinement(options.parts, options.imbalance, options.seed, passes, memory // 2, heat)
    coarser: NDArray[np.int32] | None = None
    for number in reversed(range(len(levels))):
        hypergraph = levels[number].hypergraph
        path = problem.part_path if number == 0 else problem.scratch / f"level-{number}" / "part.npy"
        here = part if number == 0 else create_part_vector(path, hypergraph.num_vertices)
        label = levels[number + 1].label if number + 1 < len(levels) else None
        if coarser is not None and label is not None:
            here[:] = coarser[label]
        elif fits:
            here[:] = _native(problem, hypergraph.load(), _COARSE_PRESET)
        else:
            place_heavy_first(hypergraph.vertex_weight, options.parts, options.seed, here)
        refine(hypergraph, here, path, refinement, problem.scratch / "masks", problem.cluster)
        if fits and len(levels) > 1:
            _refine_band(hypergraph, here, problem, memory)
        coarser = here


def _refine_band(hypergraph: DiskHypergraph, part: NDArray[np.int32], problem: PartitionProblem, memory: int) -> None:
    band = Band(
        fits=lambda num_pins, num_vertices: _needed(num_pins, num_vertices, problem) <= memory,
        improve=lambda small, given: _native(problem, small, _BAND_PRESET, given),
        scratch=problem.scratch,
    )
    refine_band(hypergraph, part, problem.options.parts, band, problem.cluster)


def _native(
    problem: PartitionProblem, hypergraph: Hypergraph, preset: str, given: NDArray[np.int32] | None = None
) -> NDArray[np.int32]:
    options = problem.options
    request = replace(PartitionRequest.of(options), preset=preset, memory_limit=None, improve=int(given is not None))
    return native_partition(hypergraph, _PROGRAM, request, problem.scratch, options.time_limit, given)


def _describe(hypergraph: DiskHypergraph) -> dict[str, int]:
    return {"vertices": hypergraph.num_vertices, "nets": hypergraph.num_nets, "pins": hypergraph.num_pins}
