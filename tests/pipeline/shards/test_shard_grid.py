"""Grid shards: every window of every variant equals the slice of the permuted matrix that SciPy cuts."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.shards.grid.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.sources.format import open_edges
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import CSR, Catalog, Dataset, ReadCounter
from gnnloom.storage.checks.shard_invariants import check_grid_shards
from gnnloom.storage.errors import InputError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.storage.shards.grid_shards import GridShards
from support.covering import examples, few_of
from support.graphs import random_adjacency, store_graph, store_vertices
from support.partitions import random_parts, store_partition
from support.scratch import SMALL_LANES, merging
from support.stopping import run_in_steps
from support.tolerance import assert_close

CLUSTER = InProcessCluster()


def permuted(adjacency: NDArray[Any], shards: GridShards, variant: str) -> NDArray[Any]:
    """The dense matrix of a variant, from the orders alone."""
    positions = np.arange(shards.num_vertices)
    rows = shards.row_order.inverse(positions) if shards.row_order else positions
    columns = shards.column_order.inverse(positions) if shards.column_order else positions
    return {
        "even": adjacency[np.ix_(rows, columns)],
        "odd": adjacency[np.ix_(columns, rows)],
        "even_transposed": adjacency.T[np.ix_(columns, rows)],
        "odd_transposed": adjacency.T[np.ix_(rows, columns)],
    }[variant]


@pytest.mark.parametrize("num_vertices", [1, 3])
def test_with_fewer_vertices_than_ranges_some_cells_are_empty(catalog: Catalog, num_vertices: int) -> None:
    dataset = catalog.create("web")
    adjacency = random_adjacency(num_vertices, 4, 1, symmetric=True)
    store_graph(dataset, adjacency, symmetric=True)
    shards = cut(dataset, grid=(5, 4))
    span = (0, num_vertices)
    np.testing.assert_array_equal(dense(shards.window("odd", span, span)), permuted(adjacency.toarray(), shards, "odd"))
    assert shards.window("even", (1, 1), span).num_rows == 0


def dense(window: CSR) -> NDArray[Any]:
    data = window.data if window.data is not None else np.ones(window.nnz)
    shape = (window.num_rows, window.num_columns)
    return scipy.sparse.csr_array((data, window.indices, window.indptr), shape=shape).toarray()


def cut(dataset: Dataset, **options: Any) -> GridShards:
    return shard_grid(dataset, dataset.graph(), GridOptions(**options), CLUSTER)


@pytest.mark.parametrize(("symmetric", "permutation"), few_of([False, True], ["double", "single", "none"], together=1))
def test_every_window_of_every_variant_is_cut_exactly(catalog: Catalog, permutation: str, symmetric: bool) -> None:
    dataset, num_vertices = catalog.create("web"), 47
    adjacency = random_adjacency(num_vertices, 6 * num_vertices, 1, symmetric=symmetric)
    store_graph(dataset, adjacency, symmetric=symmetric)
    shards = cut(dataset, grid=(3, 2), permutation=permutation, seed=3)
    for variant in ("even", "odd", "even_transposed", "odd_transposed"):
        expected = permuted(adjacency.toarray(), shards, variant)
        for parts in (1, 4):
            for row, column in itertools.product(range(parts), range(parts)):
                rows = split_range(num_vertices, parts, row)
                columns = split_range(num_vertices, parts, column)
                window = shards.window(variant, rows, columns)
                np.testing.assert_array_equal(dense(window), expected[slice(*rows), slice(*columns)])
                assert window.indices.dtype == np.int32


@settings(max_examples=examples(10), deadline=None)
@given(data=st.data())
def test_any_window_equals_a_slice(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    dataset = Catalog(tmp_path_factory.mktemp("catalog")).create("web")
    n = data.draw(st.integers(1, 40))
    adjacency = random_adjacency(n, data.draw(st.integers(0, 200)), 7, symmetric=False, loops=data.draw(st.booleans()))
    store_graph(dataset, adjacency, symmetric=False)
    grid = (data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4)))
    shards = cut(dataset, grid=grid, permutation=data.draw(st.sampled_from(["none", "single", "double"])))
    first_row, last_row, first_column, last_column = (data.draw(st.integers(0, n)) for _ in range(4))
    rows = min(first_row, last_row), max(first_row, last_row)
    columns = min(first_column, last_column), max(first_column, last_column)
    variant = data.draw(st.sampled_from(["even", "odd_transposed"]))
    window = shards.window(variant, rows, columns)
    np.testing.assert_array_equal(
        dense(window), permuted(adjacency.toarray(), shards, variant)[slice(*rows), slice(*columns)]
    )


@pytest.mark.parametrize("permutation", ["none", "single", "double"])
def test_vertex_data_follow_the_orders(catalog: Catalog, permutation: str) -> None:
    dataset, n = catalog.create("web"), 101
    rng = np.random.default_rng(0)
    feature, label, split = rng.normal(size=(n, 3)).astype(np.float32), rng.integers(-1, 5, n), rng.integers(0, 4, n)
    adjacency = random_adjacency(n, 500, 1, symmetric=True)
    store_graph(dataset, adjacency, symmetric=True)
    store_vertices(dataset, feature, label, split)
    shards = cut(dataset, grid=(6, 6), permutation=permutation)
    for order in ("rows", "columns"):
        for span in ((0, n), (10, 60), (33, 34), (5, 5), (0, 0)):
            ids = shards.vertex_ids(order, span)
            np.testing.assert_array_equal(shards.vertex_data("feature", order, span), feature[ids])
            np.testing.assert_array_equal(shards.vertex_data("label", order, span), label[ids])
            np.testing.assert_array_equal(shards.vertex_data("split", order, span), split[ids])
            np.testing.assert_array_equal(shards.vertex_data("degree", order, span), np.diff(adjacency.indptr)[ids])


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [pytest.param(False, marks=pytest.mark.long), True])
def test_merging_runs_and_stopping_on_the_way_change_no_byte(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, weighted: bool
) -> None:
    adjacency = random_adjacency(300, 4000, 5, symmetric=False)
    for name in ("plain", "merged"):
        dataset = catalog.create(name)
        store_graph(dataset, adjacency, symmetric=False, weighted=weighted, num_blocks=12)
    plain = cut(catalog["plain"], grid=(3, 2))
    dataset = catalog["merged"]
    merged, ran = run_in_steps(
        lambda cluster: shard_grid(dataset, dataset.graph(), GridOptions((3, 2)), cluster),
        9,
        scratch=merging(3, SMALL_LANES),
    )
    assert merged.artifact.digest == plain.artifact.digest
    assert len(ran) == len(set(ran))
    # Two levels: what twelve tasks scattered for each of the variants becomes at most three runs for each cell.
    assert {name.split("/")[3].rsplit("-", 2)[0] for _, name in ran if name.startswith("merge/cells/")} == {
        "12-4x3",
        "12-2x9",
    }


@pytest.mark.slow
def test_reading_a_window_reads_its_share_of_the_bytes_and_counts_them(catalog: Catalog) -> None:
    dataset = catalog.create("web")
    store_graph(dataset, random_adjacency(2000, 60_000, 5, symmetric=True), symmetric=True)
    shards = cut(dataset, grid=(8, 8))
    whole, quarter = ReadCounter(), ReadCounter()
    shards.window("even", (0, 2000), (0, 2000), whole)
    shards.window("even", (0, 1000), (1000, 2000), quarter)
    assert 0 < quarter.bytes < 0.3 * whole.bytes


def lattice(side: int) -> Any:
    """A side x side grid with loops and ids in order."""
    ones: Any = [np.ones(side - 1)] * 2
    path = scipy.sparse.diags_array(ones, offsets=[-1, 1])
    eye = scipy.sparse.eye_array(side)
    return (scipy.sparse.kron(path, eye) + scipy.sparse.kron(eye, path) + scipy.sparse.eye_array(side**2)).tocsr()


@pytest.mark.slow
def test_the_double_permutation_balances_a_lattice_and_the_single_one_does_not(catalog: Catalog) -> None:
    dataset = catalog.create("roads")
    store_graph(dataset, lattice(160), symmetric=True)
    balance = {
        name: cut(dataset, grid=(8, 8), permutation=name).artifact.facts["balance"]["even"]
        for name in ("none", "single", "double")
    }
    assert balance["none"] > 7
    assert 2.2 < balance["single"] < 2.6
    assert balance["double"] < 1.05


@pytest.mark.long
def test_cells_of_a_large_lattice_and_of_a_power_law_graph_are_balanced(catalog: Catalog, shared_data: Path) -> None:
    roads, slashdot = catalog.create("roads"), catalog.create("slashdot")
    store_graph(roads, lattice(1000), symmetric=True)
    edges = open_edges(None, [str(shared_data / "soc-Slashdot0902.txt.gz")])
    ingest_graph(slashdot, edges, IngestOptions(ids="compact"), InProcessCluster())
    for dataset, bound in ((roads, 1.02), (slashdot, 1.2)):
        shards = cut(dataset, grid=(8, 8), permutation="double")
        assert 1 <= shards.artifact.facts["balance"]["even"] < bound


def test_weights_stay_with_their_entries(catalog: Catalog) -> None:
    dataset, n = catalog.create("web"), 60
    adjacency = random_adjacency(n, 400, 2, symmetric=False)
    weights = np.random.default_rng(1).normal(size=adjacency.nnz).astype(np.float32)
    adjacency.data = weights.astype(np.float64)
    store_graph(dataset, adjacency, symmetric=False, weighted=True)
    shards = cut(dataset, grid=(3, 5))
    for variant in ("even", "even_transposed", "odd", "odd_transposed"):
        window = dense(shards.window(variant, (7, 50), (3, n)))
        assert_close(window, permuted(adjacency.toarray(), shards, variant)[7:50, 3:n], bits=0, dtype=np.float32)
    degree = shards.vertex_data("degree", "rows", (0, n))
    expected = adjacency.toarray().sum(1)[shards.vertex_ids("rows", (0, n))]
    assert_close(degree, expected, bits=3, dtype=np.float32)


def test_the_order_of_a_partition_sorts_by_part_and_then_by_id(catalog: Catalog) -> None:
    dataset, n = catalog.create("web"), 83
    adjacency = random_adjacency(n, 400, 2, symmetric=False)
    graph = store_graph(dataset, adjacency, symmetric=False)
    label = np.arange(n)
    store_vertices(dataset, None, label, None)
    part = random_parts(n, 5, 4)
    partition = store_partition(dataset, graph, part, 5)
    shards = shard_grid(dataset, graph, GridOptions((3, 4), "partition"), CLUSTER, partition=partition)
    expected = np.argsort(part, kind="stable")
    for order in ("rows", "columns"):
        np.testing.assert_array_equal(shards.vertex_ids(order, (0, n)), expected)
        np.testing.assert_array_equal(shards.vertex_data("label", order, (7, 40)), label[expected[7:40]])
    for variant, matrix in (("even", adjacency.toarray()), ("odd_transposed", adjacency.toarray().T)):
        window = dense(shards.window(variant, (5, 60), (20, 70)))
        np.testing.assert_array_equal(window, matrix[np.ix_(expected[5:60], expected[20:70])])
    assert dataset.grid_shards(permutation="partition", parts=5).artifact.key == shards.artifact.key
    check_grid_shards(shards.artifact, graph.nnz)
    with pytest.raises(InputError, match="not stored by id"):
        shards.positions("rows", expected)


def test_only_permutation_partition_takes_a_partition_and_it_requires_one(catalog: Catalog) -> None:
    dataset = catalog.create("web")
    graph = store_graph(dataset, random_adjacency(20, 50, 0, symmetric=True), symmetric=True)
    partition = store_partition(dataset, graph, random_parts(20, 2, 0), 2)
    with pytest.raises(InputError, match="none was given"):
        cut(dataset, permutation="partition")
    with pytest.raises(InputError, match="one was given"):
        shard_grid(dataset, graph, GridOptions(), CLUSTER, partition=partition)


def test_wrong_options_are_named() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"grid": (0, 4)}, "grid 0x4"),
        ({"permutation": "triple"}, "expected one of none, single, double, partition"),
        ({"seed": -1}, "seed -1: expected at least 0"),
    ]
    for options, message in cases:
        with pytest.raises(InputError, match=message):
            GridOptions(**options)


def test_vertices_of_another_graph_are_refused(catalog: Catalog) -> None:
    dataset = catalog.create("web")
    store_graph(dataset, random_adjacency(20, 50, 0, symmetric=True), symmetric=True)
    store_vertices(dataset, np.ones((19, 2)), None, None)
    with pytest.raises(InputError, match="19 vertices, the graph has 20"):
        cut(dataset)
    assert not [info for info in dataset.artifacts("shards") if isinstance(info, Artifact)]
