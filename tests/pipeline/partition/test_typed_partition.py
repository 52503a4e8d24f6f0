"""Partitions of graphs with types: the cut is the rows exchanged for all relations, and what is balanced is chosen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnloom.pipeline.partition.stage import METHODS, PartitionOptions, partition_graph
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.typed.union import BOTH, FORWARD, UnionSpec, least_entries
from gnnloom.storage.errors import BudgetError, InputError, NotFoundError
from support.covering import examples, few_of
from support.graphs import random_adjacency, store_graph
from support.partitions import cover_sent, rows_sent
from support.typed_dense import dense_union, ingest_kept, typed_problems
from support.typed_tables import TypedProblem, random_problem

HERE = InProcessCluster()


@pytest.mark.parametrize(("reverse", "method"), few_of([False, True], tuple(METHODS), together=1))
def test_the_figures_of_every_method_are_those_of_the_union(
    catalog: Catalog, tmp_path: Path, method: str, reverse: bool
) -> None:
    dataset = catalog.create("shop")
    graph = ingest_kept(random_problem(1, 120), dataset, tmp_path / "tables")
    options = PartitionOptions(4, method=method, imbalance=0.1, reverse=reverse)
    partition = partition_graph(dataset, graph, options, HERE)
    part, quality = partition.part(), partition.quality
    union, entries = dense_union(graph, "both" if reverse else "forward")
    assert quality["volume_matrix"] == rows_sent(union, part, 4).tolist()
    assert quality["km1"] == rows_sent(union, part, 4).sum()
    if reverse:
        assert "volume_backward_total" not in quality
    else:
        assert quality["volume_backward_matrix"] == rows_sent(union.T, part, 4).tolist()
    assert quality["load_per_part"] == [int(entries[part == each].sum()) for each in range(4)]
    for each in graph.types:
        own = part[each.first : each.first + each.count]
        assert quality["vertices_per_type"][each.name] == np.bincount(own, minlength=4).tolist()


@pytest.mark.parametrize("replicate", [(), ("country",)])
def test_passes_lower_the_cover_of_the_union(catalog: Catalog, tmp_path: Path, replicate: tuple[str, ...]) -> None:
    dataset = catalog.create("shop")
    graph = ingest_kept(random_problem(1, 400), dataset, tmp_path / "tables")
    plain = PartitionOptions(4, "random", 0.1, exchange="cover", reverse=True, replicate=replicate)
    before, after = (partition_graph(dataset, graph, each, HERE) for each in (plain, replace(plain, cover_passes=8)))
    union, _ = dense_union(graph, "both", replicate)
    for partition in (before, after):
        assert partition.quality["volume_cover_total"] == cover_sent(union, partition.part(), 4).sum()
    assert after.quality["volume_cover_total"] < 0.95 * before.quality["volume_cover_total"]
    assert after.quality["imbalance"] <= max(0.1, before.quality["imbalance"]) + 1e-9


@pytest.mark.parametrize(("reverse", "method"), few_of([False, True], ["metis", "multilevel", "random"], together=1))
def test_rows_of_replicated_types_are_not_exchanged(
    catalog: Catalog, tmp_path: Path, method: str, reverse: bool
) -> None:
    dataset = catalog.create("shop")
    graph = ingest_kept(random_problem(1, 120), dataset, tmp_path / "tables")
    types = ("country", "item")
    options = PartitionOptions(4, method=method, imbalance=0.1, reverse=reverse, replicate=types)
    partition = partition_graph(dataset, graph, options, HERE)
    part, quality = partition.part(), partition.quality
    union, entries = dense_union(graph, "both" if reverse else "forward", types)
    assert quality["volume_matrix"] == rows_sent(union, part, 4).tolist()
    assert quality["volume_backward_matrix"] == rows_sent(union.T, part, 4).tolist()
    assert quality["load_per_part"] == [int(entries[part == each].sum()) for each in range(4)]
    assert quality["replicated_types"] == list(types)
    assert quality["replicated_rows"] == sum(graph.type(name).count for name in types)
    assert all(finding.problem is None for finding in dataset.verify())


def test_auto_replicates_small_types_that_nearly_all_parts_need(catalog: Catalog, tmp_path: Path) -> None:
    rng, folder = np.random.default_rng(4), tmp_path / "tables"
    ends = {"user": 3000, "item": 2000, "country": 3, "rare": 4}
    from_country = [(int(rng.integers(3)), user) for user in range(3000)]
    from_rare = [(number, number) for number in range(4)]
    pairs = np.stack([rng.integers(0, 3000, 6000), rng.integers(0, 2000, 6000)], 1).tolist()
    relations = {
        ("country", "of", "user"): from_country,
        ("rare", "of_few", "user"): from_rare,
        ("user", "buys", "item"): list(map(tuple, pairs)),
    }
    problem = TypedProblem(relations, {name: list(range(count)) for name, count in ends.items()}, "drop")
    dataset = catalog.create("shop")
    graph = ingest_kept(problem, dataset, folder)
    partition = partition_graph(dataset, graph, PartitionOptions(4, "random", replicate=("auto",)), HERE)
    assert partition.quality["replicated_types"] == ["country"]
    figures = {each["type"]: each for each in partition.quality["replication"]}
    assert [each["type"] for each in partition.quality["replication"]] == ["country", "rare", "item", "user"]
    # All other parts need a country of a thousand users; a quarter fewer than one of three need what one user needs.
    assert (figures["country"]["halo_rows"], figures["country"]["copies"]) == (9, 9)
    assert (figures["rare"]["halo_rows"], figures["rare"]["copies"]) == (3, 12)
    assert figures["item"]["halo_rows"] is None
    union, _ = dense_union(graph, "forward", ["country"])
    assert partition.quality["km1"] == rows_sent(union, partition.part(), 4).sum()
    # A single part has nothing to replicate.
    alone = partition_graph(dataset, graph, PartitionOptions(1, "random", replicate=("auto",)), HERE)
    assert "replicated_types" not in alone.quality


@settings(max_examples=examples(6), deadline=None)
@given(problem=typed_problems(), parts=st.sampled_from([1, 2, 3, 4, 7]), reverse=st.booleans())
def test_random_graphs(
    tmp_path_factory: pytest.TempPathFactory, problem: TypedProblem, parts: int, reverse: bool
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    dataset = Catalog(folder / "catalog").create("g")
    graph = ingest_kept(problem, dataset, folder)
    partition = partition_graph(dataset, graph, PartitionOptions(parts, "random", reverse=reverse), HERE)
    union, entries = dense_union(graph, "both" if reverse else "forward")
    assert partition.quality["km1"] == rows_sent(union, partition.part(), parts).sum()
    assert sum(partition.quality["load_per_part"]) == entries.sum()
    assert all(finding.problem is None for finding in dataset.verify())


@pytest.mark.parametrize("method", ["auto", "metis", "multilevel", "mtkahypar", "block"])
def test_the_vertices_of_a_type_are_shared_evenly(catalog: Catalog, tmp_path: Path, method: str) -> None:
    dataset = catalog.create("shop")
    graph = ingest_kept(random_problem(2), dataset, tmp_path / "tables")
    for name in ("item", "user"):
        partition = partition_graph(dataset, graph, PartitionOptions(4, method, 0.05, balance=name), HERE)
        of_type = partition.quality["vertices_per_type"][name]
        assert max(of_type) <= np.ceil(1.06 * sum(of_type) / 4)
    plain = partition_graph(dataset, graph, PartitionOptions(4, method, 0.05), HERE)
    named = partition_graph(dataset, graph, PartitionOptions(4, method, 0.05, balance="nonzeros"), HERE)
    assert named.artifact.key == plain.artifact.key


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("method", "model"), [("metis", "graph"), ("mtkahypar", "hypergraph"), ("kaminpar", "graph")])
def test_what_does_not_fit_in_memory_is_refused_before_the_union(
    catalog: Catalog, tmp_path: Path, method: str, model: str, reverse: bool
) -> None:
    dataset = catalog.create("shop")
    graph = ingest_kept(random_problem(1, edges=2000), dataset, tmp_path / "tables")
    options = PartitionOptions(4, method, model=model, reverse=reverse, memory_limit=4096)
    with pytest.raises(BudgetError, match=f"method {method}.*memory"):
        partition_graph(dataset, graph, options, HERE)
    assert not list(dataset.path.glob("transpose/*"))
    # Equal edges of several relations and parallel edges are one entry, so the number is a lower bound.
    direction = BOTH if reverse else FORWARD
    union, _ = dense_union(graph, "both" if reverse else "forward")
    assert 0 < least_entries(graph, UnionSpec(direction)) <= np.count_nonzero(union)


def test_options_of_types_are_refused_where_they_mean_nothing(catalog: Catalog, tmp_path: Path) -> None:
    dataset = catalog.create("shop")
    graph = ingest_kept(random_problem(1), dataset, tmp_path / "tables")
    untyped = store_graph(catalog.create("g"), random_adjacency(9, 20, 0, symmetric=True), symmetric=True)
    with pytest.raises(NotFoundError, match=r"no type 'itme'.*item"):
        partition_graph(dataset, graph, PartitionOptions(2, "random", balance="itme"), HERE)
    with pytest.raises(NotFoundError, match=r"no type 'itme'.*item"):
        partition_graph(dataset, graph, PartitionOptions(2, "random", replicate=("user", "itme")), HERE)
    with pytest.raises(InputError, match="replicate auto,item"):
        PartitionOptions(2, "random", replicate=("auto", "item"))
    with pytest.raises(InputError, match="leave out weights"):
        PartitionOptions(2, "random", balance="item", weights="unit")
    for option in ({"balance": "item"}, {"reverse": True}, {"replicate": ("item",)}):
        with pytest.raises(InputError, match=f"{next(iter(option))}: .*without types"):
            partition_graph(catalog["g"], untyped, PartitionOptions(2, "random", **option), HERE)
