"""The plan of a partition: every method and preset, with figures that grow as they should."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from benchmarks.peak import run

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.partition.presets import METHODS
from gnnloom.pipeline.partition.projection import MethodPlan, plan_partition
from gnnloom.pipeline.sources.formats import open_edges
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from support.graphs import random_adjacency, store_graph

NO_OPTIONS = {"weights": False, "header": False, "extra_columns": False}


def test_every_preset_is_planned_and_needs_more_for_more(catalog: Catalog) -> None:
    dataset = catalog.create("g")
    small = store_graph(dataset, random_adjacency(100, 300, 0, symmetric=True), symmetric=True)
    large = store_graph(catalog.create("h"), random_adjacency(1000, 9000, 0, symmetric=True), symmetric=True)
    plans = plan_partition(small, 8)
    assert [(plan.method, plan.preset) for plan in plans] == [
        (name, preset) for name, method in METHODS.items() for preset in method.presets
    ]
    assert all(plan.fits for plan in plans)
    for one, other in zip(plans, plan_partition(large, 8), strict=True):
        assert (other.memory, other.disk, other.cpu_seconds) > (one.memory, one.disk, one.cpu_seconds)


def test_what_does_not_fit_is_said_and_streams_fit_longest(catalog: Catalog) -> None:
    graph = store_graph(catalog.create("g"), random_adjacency(100, 300, 0, symmetric=True), symmetric=True)
    graph.nnz, graph.num_vertices = 1_000_000_000, 50_000_000
    fitting = {plan.method for plan in plan_partition(graph, 64, 6 << 30) if plan.fits}
    assert fitting == {"multilevel", "random", "block"}
    assert not any(plan.fits for plan in plan_partition(graph, 64, 1 << 20))


def test_multilevel_needs_the_memory_of_a_worker_beside_its_state(catalog: Catalog) -> None:
    graph = store_graph(catalog.create("g"), random_adjacency(100, 300, 0, symmetric=True), symmetric=True)
    graph.nnz, graph.num_vertices = 1_000_000_000, 50_000_000
    needed = {}
    for worker in (1 << 30, 4 << 30):
        plans = plan_partition(graph, 64, worker_memory=worker)
        needed[worker] = {plan.preset: plan.memory for plan in plans if plan.method == "multilevel"}
    assert needed[4 << 30]["auto"] - needed[1 << 30]["auto"] == 3 << 30
    assert needed[4 << 30]["streaming"] == needed[1 << 30]["streaming"]


def test_the_plan_knows_the_model_and_the_directions(catalog: Catalog) -> None:
    graph = store_graph(catalog.create("g"), random_adjacency(1000, 9000, 0, symmetric=False), symmetric=False)

    def plans(**chosen: str) -> dict[str, MethodPlan]:
        return {plan.method: plan for plan in plan_partition(graph, 8, **chosen)}

    forward, both, stochastic = plans(), plans(directions="both"), plans(model="stochastic")
    for method in ("mtkahypar", "kahypar", "multilevel"):
        assert both[method].memory > forward[method].memory
        assert both[method].cpu_seconds > forward[method].cpu_seconds
    assert (stochastic["mtkahypar"].model, stochastic["metis"].model) == ("stochastic", "graph")
    assert stochastic["mtkahypar"].memory > forward["mtkahypar"].memory
    assert stochastic["mtkahypar"].cpu_seconds > forward["mtkahypar"].cpu_seconds
    assert stochastic["metis"] == forward["metis"]


def test_more_parts_than_vertices_are_not_planned(catalog: Catalog) -> None:
    graph = store_graph(catalog.create("g"), random_adjacency(200, 300, 0, symmetric=True), symmetric=True)
    with pytest.raises(InputError, match="parts=5000: the graph has 200 vertices"):
        plan_partition(graph, 5000)


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
def test_the_plan_of_a_real_graph_is_near_what_is_measured(
    catalog: Catalog, shared_data: Path, method: str, preset: str
) -> None:
    """Memory within a factor of 2, processor time (which a busy machine prolongs) within one of 5."""
    dataset = catalog.create("epinions")
    source = open_edges(None, (str(shared_data / "soc-Epinions1.txt.gz"),), NO_OPTIONS)
    graph = ingest_graph(dataset, source, IngestOptions(undirected=True), InProcessCluster())
    (plan,) = [plan for plan in plan_partition(graph, 8) if (plan.method, plan.preset) == (method, preset)]
    command = [sys.executable, "-m", "gnnloom.workflows.cli.main", "--catalog", str(catalog.root), "partition"]
    chosen = ["--parts", "8", "--method", method, "--workers", "0", *(["--preset", preset] if preset else [])]
    taken = run([*command, "epinions", *chosen], {})
    assert taken.peak_total / 2 < plan.memory < 2 * taken.peak_total
    assert taken.processor / 5 < plan.cpu_seconds < 5 * taken.processor
