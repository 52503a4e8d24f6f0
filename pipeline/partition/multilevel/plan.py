"""The phases of the multilevel method for stated sizes, made by the functions that make the real phases.

The finest level is known, and holds most of the work.  How a level shrinks is not known, but coarsening ends at a level
that keeps more than a given share of the pins of the level before: so each level has at most that share, and a net of a
coarser level has two pins or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gnnloom.pipeline.partition.choice import MOST_PINS, choose
from gnnloom.pipeline.partition.multilevel.boundary_refine import refine_boundary_phases
from gnnloom.pipeline.partition.multilevel.cluster_rounds import cluster_phases
from gnnloom.pipeline.partition.multilevel.contraction import contract_phases
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import Clusters, DiskHypergraph
from gnnloom.pipeline.partition.multilevel.heavy_first import place_phases
from gnnloom.pipeline.partition.multilevel.out_of_core import KEPT_SHARE, fits_natively, refinement_of
from gnnloom.pipeline.partition.multilevel.part_files import inherit_phase, load_phase
from gnnloom.pipeline.partition.multilevel.pieces import Setting
from gnnloom.pipeline.partition.multilevel.refine import Refinement, refine_phases
from gnnloom.pipeline.partition.multilevel.store_hypergraph import finest_level, store_phases
from gnnloom.pipeline.partition.multilevel.transpose_incidence import transpose_phases
from gnnloom.pipeline.partition.native.mt_kahypar import MT_KAHYPAR
from gnnloom.pipeline.partition.settings import QUALITY_METHOD
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.phase import Phase
from gnnloom.pipeline.tasks.sizes import GraphSizes

_NOWHERE = Path()


def method_phases(graph: GraphSizes, setting: Setting, method: str, preset: str, directions: int = 1) -> list[Phase]:
    """The phases that make parts, for a finest level and at most one more; none if not by this method.

    :func:`boundary_phases` has the phases that preset ``auto`` adds if a level fits in memory.

    Args:
        method, preset: as they were asked for.
        directions: products whose exchange is weighed, 1 or 2.

    Raises:
        BudgetError: the memory leaves no room for buffers.
    """
    finest = finest_level(graph.num_vertices, graph.nnz, directions)
    runs, passes = _chosen_preset(method, preset, finest.num_pins)
    if not runs or setting.parts in {1, finest.num_vertices}:
        return []
    fits = runs == "auto" and _fits(finest, setting)
    levels = [finest] if fits else levels_at_most(finest, runs)
    return [
        *store_phases(graph, directions, finest.steps),
        *level_phases(levels, setting, runs, fits=fits, passes=passes),
    ]


def boundary_phases(graph: GraphSizes, setting: Setting, method: str, preset: str, directions: int = 1) -> list[Phase]:
    """The phases that find the boundary of the finest level, as large as a worker's memory allows.

    There are none unless preset ``auto`` runs on several levels; the boundaries of coarser levels are smaller.
    """
    finest = finest_level(graph.num_vertices, graph.nnz, directions)
    if _chosen_preset(method, preset, finest.num_pins)[0] != "auto" or _fits(finest, setting):
        return []
    pins = working_memory(setting.memory) // MT_KAHYPAR.bytes_per_pin
    return refine_boundary_phases(finest, setting.parts, pins)


def _chosen_preset(method: str, preset: str, num_pins: int) -> tuple[str, int]:
    """The preset of the multilevel method that runs, empty if another method does; and its passes, 0 for the usual."""
    if method != QUALITY_METHOD:
        return (preset if method == "multilevel" else ""), 0
    if num_pins <= MOST_PINS:
        return "", 0
    (way,) = choose(preset, num_pins, None).ways
    return ("flat" if way.passes else "auto"), way.passes


def _fits(level: DiskHypergraph, setting: Setting) -> bool:
    """Whether a level is partitioned in memory as a whole."""
    return fits_natively(level.num_pins, level.num_vertices, setting.parts, working_memory(setting.memory))


def levels_at_most(finest: DiskHypergraph, preset: str) -> list[DiskHypergraph]:
    """The finest level, and the largest that may follow; further levels shrink at least as much."""
    if preset == "flat":
        return [finest]
    num_pins = int(KEPT_SHARE[preset] * finest.num_pins)
    # Nets of one pin are gone, and a cluster has at least one vertex.
    num_nets = min(finest.num_nets, num_pins // 2)
    return [
        finest,
        DiskHypergraph.stated(finest.num_vertices, num_nets, num_pins, is_weighted=True, steps=finest.steps),
    ]


def level_phases(
    levels: Sequence[DiskHypergraph], setting: Setting, preset: str, *, fits: bool, passes: int = 0
) -> list[Phase]:
    """The phases after the hypergraph is stored.

    Args:
        levels: from the finest on.
        fits: whether the last is partitioned in memory.
        passes: see :func:`gnnloom.pipeline.partition.multilevel.out_of_core.partition_out_of_core`.
    """
    refinement = refinement_of(
        setting.parts, 0.0, 0, working_memory(setting.memory), levels[0].steps, fits=fits, passes=passes
    )
    found: list[Phase] = []
    for number, level in enumerate(levels):
        is_last = number + 1 == len(levels)
        # The clusters of the last level are given up, unless nothing tries to coarsen it.
        tries = preset != "flat" and not (is_last and fits)
        phases = _coarsening(level, None if is_last else levels[number + 1], setting) if tries else []
        phases += _uncoarsening(level, setting, refinement, is_last=is_last, fits=fits)
        found += [replace(phase, name=f"{phase.name}, level {number}" if number else phase.name) for phase in phases]
    return [*found, load_phase("check loads", levels[0], _NOWHERE, setting.parts)]


def _coarsening(level: DiskHypergraph, coarse: DiskHypergraph | None, setting: Setting) -> list[Phase]:
    clusters = cluster_phases(level, level.steps.cluster_passes, setting.workers) if level.is_for_tasks else []
    # Where clusters are given up, it is not known what they would have left.
    contracted = [
        replace(phase, at_most=phase.at_most or coarse is None)
        for phase in contract_phases(level, coarse or level, setting.memory)
    ]
    memory, workers = working_memory(setting.memory), setting.workers
    return [
        *clusters,
        *contracted,
        *(
            transpose_phases(coarse.nets, coarse.vertices, memory, workers, coarse.scratch, coarse.steps)
            if coarse
            else []
        ),
    ]


def _uncoarsening(
    level: DiskHypergraph, setting: Setting, refinement: Refinement, *, is_last: bool, fits: bool
) -> list[Phase]:
    n, start = level.num_vertices, []
    if not is_last:
        clusters = Clusters(_NOWHERE, _NOWHERE, n, 0, 0)
        start = [inherit_phase(clusters, _NOWHERE, _NOWHERE, level)]
    elif not fits and level.is_for_tasks:
        start = place_phases(level)
    return [*start, *refine_phases(level, setting, refinement)]
