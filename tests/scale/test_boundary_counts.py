"""What the refinement of a boundary would do on hypergraphs of any size, counted from the plan that it runs with."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray
from scale.counted_cluster import MeteredCluster
from scale.scale_graphs import GRAPHS, MEMORY, Described
from scale.test_counts import MOST_OPENS, check_opens
from scale.test_multilevel_counts import check_bytes

from gnnloom.pipeline.partition.model.hypergraph import Hypergraph
from gnnloom.pipeline.partition.multilevel.boundary_refine import (
    BoundaryRefinement,
    refine_boundary,
    refine_boundary_phases,
)
from gnnloom.pipeline.partition.multilevel.boundary_rings import WIDEST
from gnnloom.pipeline.partition.multilevel.contraction import contract_nets
from gnnloom.pipeline.partition.multilevel.disk_hypergraph import DiskHypergraph, store_clusters
from gnnloom.pipeline.partition.multilevel.pieces import Setting, store_vector
from gnnloom.pipeline.partition.multilevel.plan import boundary_phases
from gnnloom.pipeline.partition.multilevel.store_hypergraph import store_hypergraph
from gnnloom.pipeline.partition.native.mt_kahypar import MT_KAHYPAR
from gnnloom.pipeline.partition.partitioner import LEVEL_STEPS, LevelSteps
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.tasks.memory import working_memory
from gnnloom.pipeline.tasks.phase import PhaseCount, client_bytes, count
from gnnloom.storage import Catalog
from support.graphs import store_graph

HERE = InProcessCluster()
PARTS = 1024
cases = pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)


def pins_that_fit(memory: int) -> int:
    """Pins that Mt-KaHyPar partitions in a worker's memory."""
    return working_memory(memory) // MT_KAHYPAR.bytes_per_pin


@cache
def phases(graph: Described, memory: int = MEMORY) -> list[PhaseCount]:
    sizes = graph.num_vertices, graph.num_vertices, graph.nnz + graph.num_vertices
    hypergraph = DiskHypergraph.stated(*sizes, is_weighted=True)
    return count(refine_boundary_phases(hypergraph, PARTS, pins_that_fit(memory)))


@cases
def test_growing_a_boundary_opens_few_files(graph: Described) -> None:
    counted = phases(graph)
    check_opens(counted)
    for phase in counted:
        assert phase.most_opens <= MOST_OPENS * phase.arrays, phase


@cases
def test_the_pins_are_read_once_however_wide_the_boundary_is(graph: Described) -> None:
    counted = phases(graph)
    pins = graph.nnz + graph.num_vertices
    # Only the search for cut nets reads all pins; a step reads bytes of every vertex and net, and what fits in memory.
    per_vertex = sum(phase.bytes_read * phase.repeats for phase in counted) - 2 * 8 * pins - (WIDEST + 1) * 8 * MEMORY
    assert per_vertex <= 64 * graph.num_vertices + PARTS * 16 * (graph.num_vertices / LEVEL_STEPS.task_vertices + 1)


@cases
def test_no_task_reads_more_than_its_share_or_what_fits_in_memory(graph: Described) -> None:
    for phase in phases(graph):
        assert phase.largest_task <= 2 * phase.bytes_read / phase.tasks + MEMORY, phase
        assert phase.largest_task <= 4 << 30, phase


@cases
def test_the_client_describes_few_tasks(graph: Described) -> None:
    data = 8 * (graph.nnz + graph.num_vertices)
    assert client_bytes(phases(graph)) <= data // 400 + (20 << 20)


#: A weighted hypergraph has all phases of one without weights.
@pytest.mark.parametrize("weighted", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_boundary_is_refined_by_the_counted_tasks_that_open_the_counted_files(
    tmp_path: Path, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = LevelSteps(few_pins=0, range_pins=1000, scan_pins=500, task_vertices=200)
    hypergraph = replace(ladder(tmp_path, weighted=weighted), steps=steps)
    n = hypergraph.num_vertices
    # Files that are counted lie below a folder of this name.
    folder = tmp_path / ".work"
    path = store_vector(folder / "part.npy", (np.arange(n) >= n // 2).astype(np.int32))

    def improve(_: Hypergraph, given: NDArray[np.int32]) -> NDArray[np.int32]:
        return given

    cluster, pins = MeteredCluster(monkeypatch), hypergraph.num_pins
    # What loads kernels is not measured.
    for each in (HERE, cluster):
        assert refine_boundary(hypergraph, path, 2, BoundaryRefinement(lambda *_: True, improve, folder), each)
    phases = refine_boundary_phases(hypergraph, 2, pins)
    assert ("select weights" in {phase.name for phase in phases}) == weighted
    for function in {phase.function.__name__ for phase in phases}:
        planned = count([phase for phase in phases if phase.function.__name__ == function])
        opened = cluster.opens(function)
        tasks, opens = (sum(getattr(phase, name) * phase.repeats for phase in planned) for name in ("tasks", "opens"))
        if function == "_place":
            # Contracting what is left joins lists as well. Lists without nets have no file of ids.
            opened = opened[:tasks]
            assert len(opened) < sum(opened) <= opens
        else:
            assert sum(opened) == opens, function
        assert len(opened) == tasks, function
        assert max(opened) == max(phase.most_opens for phase in planned) > 1, function
        if function != "_place":
            phases_of = [phase for phase in phases if phase.function.__name__ == function]
            check_bytes(phases_of, [run for run in cluster.phases if run.where[1] == function])


def ladder(folder: Path, *, weighted: bool) -> DiskHypergraph:
    """A long strip, so that a boundary grows by all rings without an end in sight."""
    length, width = 400, 4
    path = scipy.sparse.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(length, length))
    adjacency = scipy.sparse.kron(path, np.ones((width, width))).tocsr()
    graph = store_graph(Catalog(folder / ".work").create("g"), adjacency, symmetric=True)
    hypergraph = store_hypergraph(folder / ".work" / "disk", graph, graph, HERE)
    if not weighted:
        return hypergraph
    coarse = folder / ".work" / "coarse"
    clusters = store_clusters(hypergraph, np.arange(length * width) // 2, coarse)
    return contract_nets(hypergraph, clusters, coarse, HERE).on_disk(MEMORY, HERE)


@cases
def test_a_plan_counts_the_boundary_where_a_graph_does_not_fit_in_memory(graph: Described) -> None:
    def counted(memory: int, preset: str = "auto") -> list[PhaseCount]:
        setting = Setting(PARTS, 2, memory)
        return count(boundary_phases(graph.source.graph, setting, "multilevel", preset))

    assert [phase.phase for phase in counted(MEMORY)] == [
        "find cut nets",
        *("spread to vertices", "reach vertices", "spread to nets", "reach nets"),
        *("select nets", "join nets of the boundary", "count boundary", "label vertices"),
    ]
    assert counted(MEMORY, "streaming") == []
    assert counted(1 << 50) == []
