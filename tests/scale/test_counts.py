"""What stages would do on graphs of any size, counted from the plans that they run with.

That the counts are those of real runs is tested where the stages are: ``test_grid_vertex_plan`` and ``test_row_halo``.
"""

from __future__ import annotations

import math
from functools import cache

import pytest
from scale.scale_graphs import GRAPHS, Described

from gnnloom.pipeline.shards.grid_vertex_plan import VertexPlan
from gnnloom.pipeline.shards.halo_regrouping import HaloGroups
from gnnloom.pipeline.tasks.memory import BASE_MEMORY
from gnnloom.pipeline.tasks.phase_counts import PhaseCount, total_tasks

RANKS = (1, 64, 1024)
MEMORY = 1 << 30
#: Files that one task may open for each array that it reads.
MOST_OPENS = 16
cases = pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
on_ranks = pytest.mark.parametrize("ranks", RANKS)


@cache
def vertex_phases(graph: Described, ranks: int, memory: int = MEMORY) -> list[PhaseCount]:
    """Phases of the vertex data of a square grid."""
    side = math.isqrt(ranks)
    return VertexPlan.of(graph.num_vertices, side, graph.types, memory, is_identity=False).counts()


@cases
@on_ranks
def test_tasks_of_vertex_data_open_few_files_and_read_little(graph: Described, ranks: int) -> None:
    for phase in vertex_phases(graph, ranks):
        assert phase.most_opens <= MOST_OPENS, phase
        assert phase.largest_task <= MEMORY, phase
        assert phase.client_bytes == 0


@cases
@on_ranks
def test_opens_and_bytes_of_vertex_data_are_linear_in_the_data(graph: Described, ranks: int) -> None:
    phases, data = vertex_phases(graph, ranks), graph.num_vertices * (8 + 8 + 4 * graph.width + 4 + 1)
    # A task has 16 MiB of data or more, except for one small bucket in each row of the grid.
    assert total_tasks(phases) <= len(phases) * (data / (16 << 20) + math.isqrt(ranks))
    # The levels grow with the logarithm: three at 5 TB.
    assert len(phases) <= 4
    assert sum(phase.opens for phase in phases) <= 32 * 3 * total_tasks(phases)
    assert sum(phase.bytes_read for phase in phases) <= 1.1 * len(phases) * data


@cases
def test_the_memory_of_vertex_data_is_the_budget(graph: Described) -> None:
    for memory in (448 << 20, 1 << 30, 16 << 30):
        plan = VertexPlan.of(graph.num_vertices, 16, graph.types, memory, is_identity=False)
        assert BASE_MEMORY + plan.peak_memory() <= memory


@cases
@on_ranks
def test_regrouping_halos_takes_few_tasks_that_open_few_files(graph: Described, ranks: int) -> None:
    phases = HaloGroups(ranks).counts(graph.halo_rows(ranks))
    root = math.ceil(math.sqrt(ranks))
    for phase in phases:
        assert phase.tasks <= root
        assert phase.opens <= 2 * ranks + 2 * root
        # Offsets and entries of a square root of the ranks: two arrays from each file, each opened once for either.
        assert phase.most_opens <= 2 * root
        assert phase.client_bytes == 0
        assert phase.largest_task * phase.tasks <= 1.1 * (8 * graph.halo_rows(ranks) + 8 * ranks**2) + 8
