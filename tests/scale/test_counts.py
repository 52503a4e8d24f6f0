"""What stages would do on graphs of any size, counted from the plans that they run with.

That the counts are those of real runs is tested in ``test_real_runs``, and where the stages are:
``test_grid_vertex_plan``, ``test_row_halo`` and ``test_tables``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import pytest
from scale.scale_graphs import GRAPHS, MEMORY, NARROW, Described

from gnnloom.pipeline.ingest.projection import ingest_phases
from gnnloom.pipeline.ingest.typed.divide import DividePlan, Division
from gnnloom.pipeline.ingest.vertex_rows import stated_vertex_phases
from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.pipeline.links.projection import link_phases, num_edges
from gnnloom.pipeline.matrix_sort.sort_plan import SortOptions
from gnnloom.pipeline.shards.grid.grid_plan import GridPlaces, GridPlan
from gnnloom.pipeline.shards.rows.row_halo import halo_shuffle
from gnnloom.pipeline.shards.rows.row_plan import row_phases
from gnnloom.pipeline.shards.rows.row_shuffles import RowPlaces
from gnnloom.pipeline.shards.shard_options import GridOptions
from gnnloom.pipeline.shuffle.plan import ShufflePlan
from gnnloom.pipeline.tasks.memory import BASE_MEMORY, MINIMUM_MEMORY
from gnnloom.pipeline.tasks.phase import PhaseCount, client_bytes, count, total_tasks
from gnnloom.pipeline.tasks.sizes import PartSizes

RANKS = (1, 64, 1024)
#: Files that one task may open for each array that it reads.
MOST_OPENS = 16
#: Bytes of a name.
NAME_BYTES = 16
cases = pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
LARGEST, LARGE = GRAPHS[-1], GRAPHS[-2:]


def long_if(is_long: bool) -> list[pytest.MarkDecorator]:
    """The marks of a case that takes a second or more, beside others that count the same phases."""
    return [pytest.mark.long] if is_long else []


#: Row shards of the largest graph have hundreds of thousands of tasks, which take ten seconds to describe.
_OF_RANKS = [(graph, ranks) for graph in (*GRAPHS, NARROW) for ranks in RANKS]
cases_on_ranks = pytest.mark.parametrize(
    ("graph", "ranks"),
    [
        pytest.param(
            graph,
            ranks,
            id=f"{graph.name}-{ranks}",
            marks=long_if(graph is LARGEST or (ranks < RANKS[-1] and graph in (*LARGE, NARROW))),
        )
        for graph, ranks in _OF_RANKS
    ],
)
cases_on_layouts = pytest.mark.parametrize(
    ("graph", "ranks", "layout"),
    [
        pytest.param(
            graph,
            ranks,
            layout,
            id=f"{layout}-{graph.name}-{ranks}",
            marks=long_if((graph is LARGEST and layout == "row") or (ranks < RANKS[-1] and graph in (*LARGE, NARROW))),
        )
        for layout in ("row", "grid")
        for graph, ranks in _OF_RANKS
    ],
)
#: Grid shards of two orders have the buckets of one order twice, and are counted on the largest graph.
cases_on_ranks_of_vertices = pytest.mark.parametrize(
    ("graph", "ranks"),
    [
        pytest.param(
            graph,
            ranks,
            id=f"{graph.name}-{ranks}",
            marks=long_if(graph is LARGEST or (ranks < RANKS[-1] and graph in LARGE)),
        )
        for graph in GRAPHS
        for ranks in RANKS
    ],
)

#: A task holds as much of any large graph with features of one width, so the largest graphs are in the long tests.
cases_of_memory = pytest.mark.parametrize(
    "graph", [pytest.param(graph, marks=long_if(graph in LARGE)) for graph in GRAPHS], ids=lambda graph: graph.name
)


@cache
def vertex_phases(graph: Described, ranks: int) -> list[PhaseCount]:
    """Phases of the vertex data of a square grid with one order."""
    side = math.isqrt(ranks)
    phases = count(GridPlan(graph.source, GridOptions((side, side), "single"), MEMORY, GridPlaces()).phases())
    return [phase for phase in phases if phase.phase.endswith("vertices")]


@cache
def table_phases(graph: Described) -> list[PhaseCount]:
    """Phases of features from a table with ids, as float32 numbers in a file."""
    types = {"feature": ("float32", (graph.width,))}
    return count(stated_vertex_phases(graph.num_vertices, types, MEMORY, by_id=True))


@cache
def sort_phases(graph: Described, *, compact: bool = False, name_bytes: float = 0) -> list[PhaseCount]:
    """Phases of an ingest."""
    phases = ingest_phases(graph.edges, SortOptions(True), MEMORY, compact=compact, name_bytes=name_bytes)
    return count(phases)


@cache
def shard_phases(graph: Described, ranks: int, layout: str) -> list[PhaseCount]:
    """Phases of the shards of random parts, or of a square grid with two orders."""
    source, side = graph.source, math.isqrt(ranks)
    if layout == "row":
        return count(row_phases(source, PartSizes.at_random(source.graph, ranks), RowPlaces()))
    return count(GridPlan(source, GridOptions((side, side), "double"), MEMORY, GridPlaces()).phases())


def check_opens(phases: Sequence[PhaseCount]) -> None:
    """No task opens more than 16 files for each array that it reads."""
    for phase in phases:
        assert phase.most_opens <= MOST_OPENS * phase.arrays, phase
        assert phase.opens <= phase.most_opens * phase.tasks, phase


def check_shares(phases: Sequence[PhaseCount], data: int, most_tasks: float) -> None:
    """A phase moves the data at most four times, in even tasks, whose descriptions the client can hold."""
    for phase in phases:
        assert phase.bytes_read <= 4 * data, phase
        assert phase.bytes_written <= 4 * data, phase
        assert phase.largest_task <= 2 * phase.bytes_read / phase.tasks + (64 << 20), phase
        assert phase.tasks <= most_tasks, phase
        # A task reads or writes 4 MiB or more, and the client holds 9 KiB for it: less than a four-hundredth.
        assert client_bytes([phase]) <= data // 400 + (20 << 20), phase


@cases
@pytest.mark.parametrize("compact", [False, True])
def test_an_ingest_opens_few_files_and_moves_the_edges_a_few_times(graph: Described, compact: bool) -> None:
    phases = sort_phases(graph, compact=compact)
    check_opens(phases)
    data = 32 * graph.edges.edges + 8 * graph.num_vertices
    check_shares(phases, data, data / (4 << 20) + 16)


@cases
def test_many_edges_are_merged_before_they_are_sorted(graph: Described) -> None:
    phases = {phase.phase: phase for phase in sort_phases(graph, compact=False)}
    is_large = graph.nnz >= 10**10
    assert ("merge" in phases) == is_large
    assert phases["sort"].most_opens <= MOST_OPENS
    # Blocks and files together grow with the data and not with its square.
    assert phases["sort"].opens <= phases["sort"].tasks * MOST_OPENS


@pytest.mark.slow
@cases
def test_a_table_with_ids_opens_few_files_and_moves_the_rows_a_few_times(graph: Described) -> None:
    phases, data = table_phases(graph), graph.num_vertices * 4 * graph.width
    check_shares(phases, data, data / (32 << 20) + 128)
    for phase in phases:
        assert phase.most_opens <= MOST_OPENS
        assert phase.largest_task <= MEMORY
    assert len(phases) <= 6


@pytest.mark.slow
@cases_on_layouts
def test_shards_move_the_data_a_few_times(graph: Described, ranks: int, layout: str) -> None:
    # Halos are sent in addition: with random parts, a graph's own share of them.
    halo = 16 * graph.halo_rows(ranks) if layout == "row" else 0
    data = 2 * graph.matrix_bytes + graph.num_vertices * (graph.row_bytes + 32) + halo + 16 * ranks**2
    phases = shard_phases(graph, ranks, layout)
    # A row block is a task, and so is every rank or cell, bucket of vertices, and chunk of features.
    check_shares(phases, data, data / (2 << 20) + 4 * ranks + 64)


@pytest.mark.slow
@cases_on_ranks
def test_the_memory_of_row_shards_is_that_of_the_smallest_workers(graph: Described, ranks: int) -> None:
    # Row blocks are cut whole, and are as large as ingest makes them.
    phases = [phase for phase in shard_phases(graph, ranks, "row") if not phase.phase.startswith("route")]
    names = {phase.phase for phase in phases}
    assert {"shard", "send lists"} <= names
    assert "write rows" in names or graph.nnz // ranks <= 8 << 20
    for phase in phases:
        assert BASE_MEMORY + phase.most_memory <= MINIMUM_MEMORY, phase


@pytest.mark.slow
@cases_on_layouts
def test_shards_open_few_files(graph: Described, ranks: int, layout: str) -> None:
    check_opens(shard_phases(graph, ranks, layout))


@cases_on_ranks_of_vertices
def test_tasks_of_vertex_data_open_few_files_and_read_little(graph: Described, ranks: int) -> None:
    for phase in vertex_phases(graph, ranks):
        assert phase.most_opens <= MOST_OPENS * phase.arrays, phase
        assert phase.largest_task <= MEMORY, phase


@cases_on_ranks_of_vertices
def test_opens_and_bytes_of_vertex_data_are_linear_in_the_data(graph: Described, ranks: int) -> None:
    phases, data = vertex_phases(graph, ranks), graph.num_vertices * (8 + 8 + 4 * graph.width + 4 + 1)
    # A task has 16 MiB of data or more, except for one small bucket in each row of the grid.
    assert total_tasks(phases) <= len(phases) * (data / (16 << 20) + math.isqrt(ranks))
    # The levels grow with the logarithm: three at 5 TB.
    assert len(phases) <= 4
    assert sum(phase.opens for phase in phases) <= 32 * 3 * total_tasks(phases)
    assert sum(phase.bytes_read for phase in phases) <= 1.1 * len(phases) * data


@cases_of_memory
def test_the_memory_of_vertex_data_is_the_budget(graph: Described) -> None:
    for memory in (448 << 20, 1 << 30, 16 << 30):
        plan = GridPlan(graph.source, GridOptions((16, 16), "single"), memory, GridPlaces())
        phases = [phase for phase in count(plan.phases()) if phase.phase.endswith("vertices")]
        assert BASE_MEMORY + max(phase.most_memory for phase in phases) <= memory


@cases_on_ranks
def test_merging_halos_opens_few_files_and_moves_each_row_a_few_times(graph: Described, ranks: int) -> None:
    rows = graph.halo_rows(ranks)
    num_bytes = 8 * rows + 16 * ranks**2
    phases = count(ShufflePlan.stated(halo_shuffle("forward", ranks), ranks, num_bytes, ranks**2).merges("merge halos"))
    assert len(phases) <= 2
    check_opens(phases)
    for phase in phases:
        # As many numbers as there are pairs of ranks that exchange rows, and not more for any task.
        assert phase.bytes_read <= num_bytes + 16 * ranks**2
        assert phase.largest_task * phase.tasks <= 2 * num_bytes + 16 * ranks**2


@pytest.mark.parametrize(
    ("graph", "disjoint"),
    [
        # Disjoint edges are chosen and stored in addition to everything else.
        pytest.param(
            graph,
            disjoint,
            id=f"{disjoint}-{graph.name}",
            marks=long_if(graph in LARGE and not disjoint),
        )
        for graph in GRAPHS
        for disjoint in (0.0, 0.3)
    ],
)
def test_links_open_few_files_and_move_the_edges_a_few_times(graph: Described, disjoint: float) -> None:
    sizes = graph.source.graph
    # Pools need numbers of pairs of vertices below 2^63.
    options = DrawOptions(disjoint=disjoint, negatives=int(sizes.num_vertices < 1 << 31))
    phases = count(link_phases(sizes, options, MEMORY, {}, has_times=options.by_time))
    check_opens(phases)
    data = graph.matrix_bytes + 16 * num_edges(sizes)
    check_shares(phases, data, data / (2 << 20) + 64)
    # A round leaves one edge in 2^16; another one is needed if two edges are left together.
    rounds = math.ceil(math.log2(num_edges(sizes)) / 16)
    assert [phase.phase for phase in phases].count("choose edges") == rounds + 1


@cases_of_memory
@pytest.mark.parametrize("memory", [448 << 20, 1 << 30])
def test_the_memory_of_links_is_the_budget(graph: Described, memory: int) -> None:
    # In the largest graph, a block has 2^23 rows. Their pointers alone take half of the buffers of 448 MiB.
    memory = max(memory, 512 << 20) if graph is LARGEST else memory
    sizes = graph.source.graph
    options = DrawOptions(disjoint=0.5, negatives=int(sizes.num_vertices < 1 << 31))
    phases = count(link_phases(sizes, options, memory, {}, has_times=False))
    assert BASE_MEMORY + max(phase.most_memory for phase in phases) <= memory


@pytest.mark.parametrize(
    "graph", [pytest.param(graph, marks=long_if(graph is LARGEST)) for graph in GRAPHS], ids=lambda graph: graph.name
)
def test_an_ingest_of_names_opens_few_files_and_moves_the_names_a_few_times(graph: Described) -> None:
    phases = sort_phases(graph, compact=True, name_bytes=NAME_BYTES)
    check_opens(phases)
    # Two names for each edge, each with an offset and a number, and the names of all vertices.
    data = 2 * graph.edges.edges * (NAME_BYTES + 16) + graph.num_vertices * (NAME_BYTES + 8)
    check_shares(phases, data, data / (4 << 20) + 16)


@pytest.mark.parametrize(
    ("edges", "relations", "types"),
    [(304_727_650, 14_824, 1), pytest.param(30_000_000_000, 500, 40, marks=pytest.mark.slow)],
)
def test_edges_of_thousands_of_relations_are_divided_in_little_memory(edges: int, relations: int, types: int) -> None:
    """Freebase as triples, and a table of thirty billion edges between vertices of forty types."""
    tasks = max(1, edges // (4 << 20))
    counts = count(DividePlan.stated(edges, tasks, Division(relations, types, types), 8).phases)
    assert counts[0].tasks == tasks
    assert max(each.most_memory for each in counts) + BASE_MEMORY <= MEMORY
    assert all(each.most_opens <= MOST_OPENS * each.arrays for each in counts)
    assert total_tasks(counts) < 5 * tasks
