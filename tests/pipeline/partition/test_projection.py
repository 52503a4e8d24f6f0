"""Projections of memory, disk and time: one for every method and preset, and figures that grow with the problem."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from benchmarks.processes import watch

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.partition.options import METHODS
from gnnloom.pipeline.partition.partition_plan import MethodProjection, project_methods
from gnnloom.pipeline.sources.format import open_edges
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from support.graphs import random_adjacency, store_graph

NO_OPTIONS = {"weights": False, "header": False, "extra_columns": False}


def test_every_preset_is_projected_and_larger_graphs_need_more(catalog: Catalog) -> None:
    dataset = catalog.create("g")
    small = store_graph(dataset, random_adjacency(100, 300, 0, symmetric=True), symmetric=True)
    large = store_graph(catalog.create("h"), random_adjacency(1000, 9000, 0, symmetric=True), symmetric=True)
    projections = project_methods(small, 8)
    assert [(each.method, each.preset) for each in projections] == [
        (name, preset) for name, method in METHODS.items() for preset in method.preset_names
    ]
    assert all(each.fits for each in projections)
    for one, other in zip(projections, project_methods(large, 8), strict=True):
        # What is chosen for one graph may need less than what is chosen for another.
        if one.chosen:
            continue
        assert (other.memory, other.disk, other.cpu_seconds) > (one.memory, one.disk, one.cpu_seconds)


def test_projections_say_what_fits_and_streaming_methods_fit_longest(catalog: Catalog) -> None:
    graph = store_graph(catalog.create("g"), random_adjacency(100, 300, 0, symmetric=True), symmetric=True)
    graph.nnz, graph.num_vertices = 1_000_000_000, 50_000_000
    fitting = {each.method for each in project_methods(graph, 64, 6 << 30) if each.fits}
    assert fitting == {"auto", "multilevel", "random", "block"}
    assert not any(each.fits for each in project_methods(graph, 64, 1 << 20))


def test_multilevel_needs_the_memory_of_a_worker_in_addition_to_its_state(catalog: Catalog) -> None:
    graph = store_graph(catalog.create("g"), random_adjacency(100, 300, 0, symmetric=True), symmetric=True)
    graph.nnz, graph.num_vertices = 1_000_000_000, 50_000_000
    needed = {}
    for worker in (1 << 30, 4 << 30):
        projections = project_methods(graph, 64, worker_memory=worker)
        needed[worker] = {each.preset: each.memory for each in projections if each.method == "multilevel"}
    assert needed[4 << 30]["auto"] - needed[1 << 30]["auto"] == 3 << 30
    assert needed[4 << 30]["streaming"] == needed[1 << 30]["streaming"]


def test_projections_depend_on_the_model_and_the_directions(catalog: Catalog) -> None:
    graph = store_graph(catalog.create("g"), random_adjacency(1000, 9000, 0, symmetric=False), symmetric=False)

    def projections(model: str = "", directions: str = "forward") -> dict[str, MethodProjection]:
        return {each.method: each for each in project_methods(graph, 8, model=model, directions=directions)}

    forward, both, stochastic = projections(), projections(directions="both"), projections(model="stochastic")
    for method in ("mtkahypar", "kahypar", "multilevel"):
        assert both[method].memory > forward[method].memory
        assert both[method].cpu_seconds > forward[method].cpu_seconds
    assert (stochastic["mtkahypar"].model, stochastic["metis"].model) == ("stochastic", "graph")
    assert stochastic["mtkahypar"].memory > forward["mtkahypar"].memory
    assert stochastic["mtkahypar"].cpu_seconds > forward["mtkahypar"].cpu_seconds
    assert stochastic["metis"] == forward["metis"]


def test_more_parts_than_vertices_are_refused(catalog: Catalog) -> None:
    graph = store_graph(catalog.create("g"), random_adjacency(200, 300, 0, symmetric=True), symmetric=True)
    with pytest.raises(InputError, match="parts=5000: "):
        project_methods(graph, 5000)


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "preset"),
    [
        ("metis", ""),
        ("multilevel", "streaming"),
        ("multilevel", "flat"),
        ("multilevel", "auto"),
        ("mtkahypar", "large-k"),
        ("mtkahypar", "default"),
        ("mtkahypar", "deterministic"),
    ],
)
def test_the_projection_of_a_real_graph_is_near_the_measurement(
    catalog: Catalog, shared_data: Path, method: str, preset: str
) -> None:
    """Memory within a factor of 2, and processor time, which a busy machine increases, within a factor of 5."""
    dataset = catalog.create("epinions")
    source = open_edges(None, (str(shared_data / "soc-Epinions1.txt.gz"),), NO_OPTIONS)
    graph = ingest_graph(dataset, source, IngestOptions(undirected=True), InProcessCluster())
    (projected,) = [each for each in project_methods(graph, 8) if (each.method, each.preset) == (method, preset)]
    command = [sys.executable, "-m", "gnnloom.workflows.cli.main", "--catalog", str(catalog.root), "partition"]
    chosen = ["--parts", "8", "--method", method, "--workers", "0", *(["--preset", preset] if preset else [])]
    taken = watch([*command, "epinions", *chosen])
    assert taken.together / 2 < projected.memory < 2 * taken.together
    assert taken.processor / 5 < projected.cpu_seconds < 5 * taken.processor
