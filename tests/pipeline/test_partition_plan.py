"""The plan of a partition: every method and preset, with figures that grow as they should."""

from __future__ import annotations

from gnnloom.pipeline.partition_plan import plan_partition
from gnnloom.pipeline.partitioners.presets import METHODS
from gnnloom.storage import Catalog
from support.graphs import random_adjacency, store_graph


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
