"""What the tasks of the multilevel method will do, counted without running them.

The numbers of tasks come from the functions that the rounds take them from.  The finest level is known, and holds most
of the work.  How a level shrinks is not known, but coarsening ends at a level that keeps more than a given share of the
pins of the level before: so each level has at most that share, and a net of a coarser level has two pins or more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gnnloom.pipeline.partition.choice import MOST_PINS
from gnnloom.pipeline.partition.multilevel.boundary_plan import BoundaryPlan
from gnnloom.pipeline.partition.multilevel.cluster_counts import cluster_counts, contract_counts, transpose_counts
from gnnloom.pipeline.partition.multilevel.cost import MULTILEVEL_PRESETS
from gnnloom.pipeline.partition.multilevel.level_size import LevelSize, Setting
from gnnloom.pipeline.partition.multilevel.out_of_core import CLUSTER_PASSES, KEPT_SHARE, fits_natively, refinement_of
from gnnloom.pipeline.partition.multilevel.refine_counts import (
    inherit_counts,
    load_counts,
    place_counts,
    refine_counts,
)
from gnnloom.pipeline.partition.multilevel.store_counts import finest_level, store_counts
from gnnloom.pipeline.partition.native.mt_kahypar import MT_KAHYPAR
from gnnloom.pipeline.partition.settings import QUALITY_METHOD
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.phase_counts import PhaseCount


def chosen_preset(method: str, preset: str, num_pins: int) -> str | None:
    """The preset of the multilevel method that runs; None if another method does."""
    if method == QUALITY_METHOD:
        return MULTILEVEL_PRESETS[0].name if num_pins > MOST_PINS else None
    return preset if method == "multilevel" else None


def method_counts(
    block_rows: Sequence[int],
    block_nnz: Sequence[int],
    setting: Setting,
    method: str,
    preset: str,
    *,
    symmetric: bool,
    directions: int,
) -> list[PhaseCount]:
    """Count the phases that make parts, for a finest level and at most one more; none if not by this method.

    What preset ``auto`` adds where a level fits in memory, :func:`boundary_counts` counts.

    Args:
        block_rows, block_nnz: rows and nonzeros of each row block of the graph.
        method, preset: as they were asked for.
        symmetric: whether the graph is undirected.
        directions: products whose exchange is weighed, 1 or 2.

    Raises:
        BudgetError: the memory leaves no room for buffers.
    """
    finest = finest_level(sum(block_rows), sum(block_nnz), directions)
    runs = chosen_preset(method, preset, finest.num_pins)
    if runs is None or setting.parts in {1, finest.num_vertices}:
        return []
    stored = store_counts(block_rows, block_nnz, symmetric=symmetric, directions=directions)
    fits = runs == "auto" and _fits(finest, setting)
    levels = [finest] if fits else levels_at_most(finest, runs)
    return [*stored, *level_counts(levels, setting, runs, fits=fits)]


def boundary_counts(
    num_vertices: int, nnz: int, directions: int, setting: Setting, method: str, preset: str
) -> list[PhaseCount]:
    """Count the phases that find the boundary of the finest level, as large as a worker's memory allows.

    There are none unless preset ``auto`` runs on several levels; the boundaries of coarser levels are smaller.
    """
    finest = finest_level(num_vertices, nnz, directions)
    if chosen_preset(method, preset, finest.num_pins) != "auto" or _fits(finest, setting):
        return []
    pins = working_memory(setting.memory) // MT_KAHYPAR.bytes_per_pin
    return BoundaryPlan.of(finest.num_vertices, finest.num_nets, finest.num_pins).counts(setting.parts, pins)


def _fits(level: LevelSize, setting: Setting) -> bool:
    """Whether a level is partitioned in memory as a whole."""
    return fits_natively(level.num_pins, level.num_vertices, setting.parts, working_memory(setting.memory))


def levels_at_most(finest: LevelSize, preset: str) -> list[LevelSize]:
    """The finest level, and the largest that may follow; what follows that has at most the same share of it again."""
    if preset == "flat":
        return [finest]
    num_pins = int(KEPT_SHARE[preset] * finest.num_pins)
    # Nets of one pin are gone, and a cluster has at least one vertex.
    num_nets = min(finest.num_nets, num_pins // 2)
    return [finest, LevelSize(finest.num_vertices, num_nets, num_pins, is_weighted=True)]


def level_counts(levels: Sequence[LevelSize], setting: Setting, preset: str, *, fits: bool) -> Iterator[PhaseCount]:
    """Count the phases after the hypergraph is stored.

    Args:
        levels: from the finest on.
        fits: whether the last is partitioned in memory.
    """
    for number in range(len(levels)):
        is_last = number + 1 == len(levels)
        # The clusters of the last level are given up, unless nothing tries to coarsen it.
        coarse = None if is_last else levels[number + 1]
        tries = preset != "flat" and not (is_last and fits)
        phases = [*_coarsening(levels[number], coarse, setting, tries=tries)]
        phases += _uncoarsening(levels[number], setting, is_last=is_last, fits=fits)
        yield from (
            replace(phase, phase=f"{phase.phase}, level {number}" if number else phase.phase) for phase in phases
        )
    yield replace(next(load_counts(levels[0], setting.parts)), phase="check loads")


def _coarsening(level: LevelSize, coarse: LevelSize | None, setting: Setting, *, tries: bool) -> Iterator[PhaseCount]:
    if not tries:
        return
    if level.is_for_tasks:
        yield from cluster_counts(level, setting, CLUSTER_PASSES)
    yield from contract_counts(level, coarse or level, setting)
    if coarse is not None:
        yield from transpose_counts(coarse, working_memory(setting.memory) // 2, setting.workers)


def _uncoarsening(level: LevelSize, setting: Setting, *, is_last: bool, fits: bool) -> Iterator[PhaseCount]:
    if not is_last:
        yield from inherit_counts(level)
    elif not fits and level.is_for_tasks:
        yield from place_counts(level)
    memory = working_memory(setting.memory)
    yield from refine_counts(level, setting, refinement_of(setting.parts, 0.0, 0, memory, fits=fits))
