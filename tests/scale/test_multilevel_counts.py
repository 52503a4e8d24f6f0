"""What the rounds of the multilevel method do on graphs of any size, counted with the numbers that they run with."""

from __future__ import annotations

import functools
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from scale.counted_cluster import Metered, MeteredCluster, OpenCounter
from scale.scale_graphs import GRAPHS, Described
from scale.test_counts import LARGEST, check_opens, long_if

from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph
from gnnloom.pipeline.partition.multilevel.pieces import Setting
from gnnloom.pipeline.partition.multilevel.plan import level_phases, levels_at_most, method_phases
from gnnloom.pipeline.partition.multilevel.store_hypergraph import finest_level, store_phases
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.partitioner import LEVEL_STEPS, LevelSteps
from gnnloom.pipeline.partition.stage import partition_graph
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.phase import Phase, PhaseCount, client_bytes, count
from gnnloom.pipeline.tasks.sizes import GraphSizes
from gnnloom.storage import Catalog
from gnnloom.storage.disk.work_folder import Scratch
from support.graphs import random_adjacency, store_graph
from support.scratch import small_chunks

MEMORY = 1 << 30
#: Most bytes that a phase reads and writes in a pass, relative to the lists of the nets and of the vertices.
MOST_BYTES = 20
cases = pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
#: The fewest and the most workers, and many parts, are quick; what lies between is in the long tests.
on_parts = pytest.mark.parametrize("parts", [pytest.param(64, marks=pytest.mark.long), 1024])
METHODS = (("multilevel", "flat"), ("multilevel", "streaming"), ("auto", "balanced"))
#: Of the largest graph, what has the most workers, and streams least; the others take a second each as well.
with_presets = pytest.mark.parametrize(
    ("graph", "workers", "method", "preset"),
    [
        pytest.param(
            graph,
            workers,
            *each,
            id=f"{'-'.join(each)}-{workers}-{graph.name}",
            marks=long_if(workers in {2, 64} or (graph is LARGEST and (workers == 1 or each[1] == "streaming"))),
        )
        for each in METHODS
        for workers in (1, 2, 64, 1024)
        for graph in GRAPHS
    ],
)


def phases(graph: Described, parts: int, workers: int, method: str, preset: str) -> list[PhaseCount]:
    return count(method_phases(graph.source.graph, Setting(parts, workers, MEMORY), method, preset))


def lists(graph: Described) -> int:
    """Bytes of the nets of all vertices and the pins of all nets."""
    level = finest_level(graph.num_vertices, graph.nnz, 1)
    return level.nets.num_bytes + level.vertices.num_bytes


def _rounds(phase: PhaseCount) -> int:
    """How often a phase runs in a pass over the vertices."""
    name = phase.phase.partition(",")[0]
    return LEVEL_STEPS.rounds if name.endswith((" joins", " moves", "change clusters", "change masks")) else 1


@on_parts
@with_presets
def test_rounds_open_few_files_and_share_their_work(
    graph: Described, parts: int, workers: int, method: str, preset: str
) -> None:
    counted, data = phases(graph, parts, workers, method, preset), lists(graph)
    check_opens(counted)
    for phase in counted:
        assert phase.largest_task <= 2 * phase.bytes_read / phase.tasks + (64 << 20), phase
        assert client_bytes([phase]) <= data // 400 + (20 << 20), phase
        # A pass consists of rounds. Every task has a table of parts.
        assert phase.most_memory <= working_memory(MEMORY), phase
        moved = (phase.bytes_read + phase.bytes_written - phase.tasks * 16 * parts) * _rounds(phase)
        assert moved <= MOST_BYTES * data, phase


@pytest.mark.slow
@pytest.mark.parametrize(
    ("graph", "preset"),
    [
        pytest.param(graph, preset, id=f"{preset}-{graph.name}", marks=long_if(graph is LARGEST and preset == "auto"))
        for preset in ("streaming", "auto")
        for graph in GRAPHS
    ],
)
def test_both_directions_of_a_directed_graph_hold_the_budget(graph: Described, preset: str) -> None:
    directed = replace(graph.source.graph, symmetric=False)
    for phase in count(method_phases(directed, Setting(64, 64, MEMORY), "multilevel", preset, directions=2)):
        assert phase.most_memory <= working_memory(MEMORY), phase


@pytest.mark.parametrize(
    "graph",
    [*GRAPHS[:2], *(pytest.param(graph, marks=pytest.mark.long) for graph in GRAPHS[2:-1])],
    ids=lambda graph: graph.name,
)
def test_a_graph_of_sixteen_times_the_size_takes_about_sixteen_times_the_tasks_and_bytes(graph: Described) -> None:
    larger = Described("larger", 16 * graph.num_vertices, 16 * graph.nnz, graph.width)
    small, large = (
        {phase.phase: phase for phase in phases(each, 64, 64, "multilevel", "streaming")} for each in (graph, larger)
    )
    for name, phase in small.items():
        # Tasks of a large graph make longer ids, so more bytes.
        assert large[name].tasks <= 33 * phase.tasks, name
        assert large[name].bytes_read <= 33 * phase.bytes_read, name


@cases
def test_levels_shrink_by_the_share_at_which_coarsening_ends(graph: Described) -> None:
    finest = finest_level(graph.num_vertices, graph.nnz, 1)
    for preset, share in (("streaming", 0.95), ("auto", 0.8)):
        (first, second) = levels_at_most(finest, preset)
        assert (first, second.num_pins) == (finest, int(share * finest.num_pins))
        assert second.num_nets <= second.num_pins // 2
    assert levels_at_most(finest, "flat") == [finest]


def test_one_part_takes_no_round() -> None:
    assert phases(GRAPHS[0], 1, 2, "multilevel", "streaming") == []


#: Phases whose tasks share some of the files, as their bounds fall; one that runs as often as parts get better.
AT_MOST, OFTEN = ("spread joins", "spread moves"), "keep parts"
#: Bytes that a task holds for Python's objects.
OBJECTS = 48 << 10


#: Sizes that divide a small graph as the real ones divide a large one, and few rounds.
FINE = LevelSteps(
    few_pins=0,
    rounds=4,
    cluster_passes=1,
    random_passes=2,
    # Fewer clusters than this for each part end the coarsening, at the second level.
    clusters_per_part=60,
    task_vertices=1 << 11,
    task_pins=1 << 11,
    task_keys=1 << 12,
    many_tasks=5,
    read_entries=1 << 11,
)


#: Streaming has the phases of the flat method, and those of levels.
@pytest.mark.long
@pytest.mark.parametrize("preset", ["flat", "streaming"])
def test_a_partition_into_64_parts_runs_the_counted_tasks_and_opens_the_counted_files(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, preset: str
) -> None:
    adjacency = random_adjacency(12_000, 24_000, 1, symmetric=True, loops=False)
    dataset = catalog.create("g")
    # A round has six tasks.
    # Fewer files than lanes.
    scratch = Scratch(files=4)
    graph = store_graph(dataset, adjacency, symmetric=True, num_blocks=7)
    cluster = MeteredCluster(monkeypatch, 3, scratch)
    load_kernels(catalog)
    found = partition_graph(dataset, graph, PartitionOptions(64, "multilevel", preset=preset), cluster, steps=FINE)
    levels = [
        replace(
            DiskHypergraph.stated(each["vertices"], each["nets"], each["pins"], is_weighted=number > 0, steps=FINE),
            scratch=scratch,
        )
        for number, each in enumerate(found.quality["levels"])
    ]
    assert len(levels) == (1 if preset == "flat" else 2)
    setting = Setting(64, cluster.workers, MEMORY)
    stored = store_phases(GraphSizes.of(graph), 1, FINE)
    check_runs([*stored, *level_phases(levels, setting, preset, fits=False)], cluster)


def check_runs(phases: Sequence[Phase], cluster: MeteredCluster) -> None:
    """The tasks open the files, write the bytes and hold the memory that their phases state."""
    runs: dict[tuple[str, str], list[Metered]] = {}
    for run in cluster.phases:
        runs.setdefault(run.where, []).append(run)
    for where, planned in _by_function(phases).items():
        (tasks, opens, most), name = _totals(count(planned)), planned[0].name.partition(",")[0]
        opened = [files for run in runs[where] for files in run.opens]
        if name in AT_MOST:
            assert len(opened) == tasks, name
            assert 0.7 * opens <= sum(opened) <= opens, name
        elif name == OFTEN:
            assert len(opened) <= tasks
            assert set(opened) == {most}
        else:
            assert (len(opened), sum(opened), max(opened)) == (tasks, opens, most), name
        check_bytes(planned, runs[where])


def check_bytes(planned: Sequence[Phase], runs: Sequence[Metered]) -> None:
    """The tasks of some phases write the stated bytes, and hold no more than is stated."""
    counted, name = count(planned), planned[0].name
    stated = sum(each.bytes_written * each.repeats for each in counted)
    if any(phase.at_most for phase in planned):
        assert sum(run.written + run.changed for run in runs) <= stated, name
    else:
        # Every list ends with one offset more.
        tasks = sum(len(run.opens) for run in runs)
        assert abs(sum(run.written + run.mapped for run in runs) - stated) <= 100 * tasks, name
    held = max(each.most_memory for each in counted) + OBJECTS
    assert max(max(run.held) for run in runs) <= held, name


def load_kernels(catalog: Catalog) -> None:
    """Run all kernels once, so that what loads them is not measured."""
    dataset = catalog.create("loading")
    graph = store_graph(dataset, random_adjacency(1000, 3000, 1, symmetric=True, loops=False), symmetric=True)
    # Some tasks get more keys than they hold, as some of those that are measured may.
    steps = replace(FINE, task_keys=1 << 8)
    partition_graph(dataset, graph, PartitionOptions(2, "multilevel", preset="streaming"), OpenCounter(), steps=steps)


def _by_function(phases: Sequence[Phase]) -> dict[tuple[str, str], list[Phase]]:
    found: dict[tuple[str, str], list[Phase]] = {}
    for phase in phases:
        found.setdefault((phase.function.__module__, phase.function.__name__), []).append(phase)
    return found


def _totals(planned: Sequence[PhaseCount]) -> tuple[int, int, int]:
    """Tasks, files that they open, and the most that one opens."""
    tasks, opens = (sum(getattr(each, name) * each.repeats for each in planned) for name in ("tasks", "opens"))
    return tasks, opens, max((each.most_opens for each in planned), default=0)


class ClientMemory(InProcessCluster):
    """Notes the most that was allocated while no task ran."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        for result in super().map(self._noting(function), items):
            tracemalloc.reset_peak()
            yield result

    def _noting(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(function)
        def noting(item: Any) -> Any:
            self.most = max(self.most, tracemalloc.get_traced_memory()[1])
            return function(item)

        return noting


@pytest.mark.long
def test_the_client_holds_no_number_of_a_vertex(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = LevelSteps(few_pins=0, random_passes=1, cluster_passes=1, rounds=2)
    # The client reads the stored parts one chunk at a time; these graphs need many chunks.
    small_chunks(monkeypatch, 1 << 15)
    held: list[int] = []
    for num_vertices in (4_000, 150_000, 350_000):
        dataset = catalog.create(f"g{len(held)}")
        adjacency = random_adjacency(num_vertices, 2 * num_vertices, 1, symmetric=True, loops=False)
        graph, cluster = store_graph(dataset, adjacency, symmetric=True, num_blocks=4), ClientMemory()
        tracemalloc.start()
        partition_graph(dataset, graph, PartitionOptions(4, "multilevel", preset="streaming"), cluster, steps=steps)
        tracemalloc.stop()
        held.append(cluster.most)
    # The first run loads kernels. The client opens a block for each task, and the other two runs have equally many. A
    # part of every vertex alone would take 800,000 bytes more.
    assert held[2] <= held[1] + 400_000
