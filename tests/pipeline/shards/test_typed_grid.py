"""Grid shards of graphs with types: blocks of every relation on one permutation, with the columns of their edges."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from gnnloom.pipeline.matrix_sort.reverses import reverse_relations
from gnnloom.pipeline.shards.grid import relation_cells, typed_grid_plan
from gnnloom.pipeline.shards.grid.typed_grid_plan import TypedGridPlaces
from gnnloom.pipeline.shards.grid.typed_grid_stage import shard_typed_grid
from gnnloom.pipeline.shards.grid.typed_grid_stage import typed_grid_plan as plan_of
from gnnloom.pipeline.shards.shard_options import PERMUTATIONS, GridOptions
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.pipeline.tasks.phase import count
from gnnloom.storage import Catalog, TypedGraph
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.errors import CorruptError, InputError, NotFoundError
from gnnloom.storage.matrix.ranges import split_range
from gnnloom.storage.shards.grid_variants import TRANSPOSED
from gnnloom.storage.shards.typed_grid_shards import TypedGridShards
from support.covering import examples
from support.damage import replace_array
from support.stopping import run_in_steps
from support.typed_dense import edge_values, ingest_kept, ingest_shop, typed_problems
from support.typed_tables import TypedProblem

HERE = InProcessCluster()
KEYED = [each for each in PERMUTATIONS if each != "partition"]


def _check(shards: TypedGridShards, graph: TypedGraph) -> None:
    """Compare all blocks and some windows of each relation and variant with its edges, in the order of positions."""
    n = graph.num_vertices
    pr, pc = (shards.positions(order, np.arange(n)) for order in ("rows", "columns"))
    assert all(np.array_equal(np.sort(order), np.arange(n)) for order in (pr, pc))
    assert [each.name for each in shards.relations] == [each.name for each in graph.relations]
    for relation in graph.relations:
        values = edge_values(relation)
        source, target = (np.concatenate([each[end] for each in relation.edge_blocks()]) for end in (0, 1))
        ends = target + relation.target.first, source + relation.source.first
        for variant in TRANSPOSED:
            first, second = (pr, pc) if variant in {"even", "odd_transposed"} else (pc, pr)
            row, column = ends[::-1] if variant.endswith("transposed") else ends
            row, column = first[row], second[column]
            order = np.lexsort((np.arange(len(row)), column, row))
            whole = shards.windows(relation.name, variant, (0, n), [(0, n)])[0]
            np.testing.assert_array_equal(np.repeat(np.arange(n), np.diff(whole.indptr)), row[order])
            np.testing.assert_array_equal(whole.indices, column[order])
            for name, value in values.items():
                if name != "feature":
                    (found,) = shards.windows(relation.name, variant, (0, n), [(0, n)], column=name)
                    np.testing.assert_array_equal(found.data, value[order])
            _check_window(shards, relation.name, variant, (row[order], column[order]))
            _check_blocks(
                shards, relation.name, variant, (row[order], column[order]), {k: v[order] for k, v in values.items()}
            )


def _check_data(shards: TypedGridShards, data: Mapping[str, Vertices]) -> None:
    """Compare the data of each type at all positions, and at some, with the stored data in the order of positions."""
    n = shards.num_vertices
    for order in ("rows", "columns"):
        for each in shards.types:
            position = shards.positions(order, np.arange(each.first, each.first + each.count))
            for name in data[each.name].names if each.name in data else ():
                stored = data[each.name].array(name).read()
                for first, last in ((0, n), (n // 3, n // 2), (5, 5)):
                    found, values = shards.vertex_data(each.name, name, order, (first, last))
                    ordered = np.argsort(position)
                    inside = ordered[(position[ordered] >= first) & (position[ordered] < last)]
                    np.testing.assert_array_equal(found, position[inside])
                    np.testing.assert_array_equal(values, stored[inside])
    with pytest.raises(NotFoundError, match="'country'"):
        shards.vertex_data("country", "feature", "rows", (0, n))


def _check_window(shards: TypedGridShards, relation: str, variant: str, entries: tuple[np.ndarray, np.ndarray]) -> None:
    """Compare windows that cut cells with SciPy's slices."""
    n = shards.num_vertices
    dense = sparse.csr_matrix((np.ones(len(entries[0])), entries), (n, n))
    for rows, columns in (((n // 3, n), (0, n // 2)), ((0, n // 2 + 1), (n // 4, n // 4 + 1)), ((1, 1), (0, n))):
        for found in shards.windows(relation, variant, rows, [columns]):
            ones = sparse.csr_matrix(
                (np.ones(found.nnz), found.indices, found.indptr), dense[slice(*rows), slice(*columns)].shape
            )
            assert abs(ones - dense[slice(*rows), slice(*columns)]).sum() == 0


def _check_blocks(
    shards: TypedGridShards,
    relation: str,
    variant: str,
    entries: tuple[np.ndarray, np.ndarray],
    values: dict[str, np.ndarray],
) -> None:
    n, (p, q) = shards.num_vertices, shards.grid
    for i in range(p):
        for j in range(q):
            (top, bottom), (left, right) = split_range(n, p, i), split_range(n, q, j)
            inside = (entries[0] >= top) & (entries[0] < bottom) & (entries[1] >= left) & (entries[1] < right)
            pattern, columns = shards.block(relation, variant, i, j)
            np.testing.assert_array_equal(pattern.indices, entries[1][inside] - left)
            np.testing.assert_array_equal(
                np.diff(pattern.indptr), np.bincount(entries[0][inside] - top, minlength=bottom - top)
            )
            assert shards.has_entries(relation, variant, i, j) == inside.any()
            for name, value in values.items() if inside.any() else ():
                np.testing.assert_array_equal(columns[name], value[inside])


@pytest.mark.parametrize(("grid", "permutation"), [((1, 1), "none"), ((3, 2), "double"), ((7, 1), "single")])
def test_blocks_of_every_relation_are_its_edges_with_their_columns(
    catalog: Catalog, tmp_path: Path, grid: tuple[int, int], permutation: str
) -> None:
    dataset = ingest_shop(catalog.root, tmp_path / "tables", users=30)
    graph = dataset.typed_graph()
    shards = shard_typed_grid(dataset, graph, GridOptions(grid, permutation, seed=3), HERE)
    _check(shards, graph)
    _check_data(shards, dataset.vertices_of_types(graph.artifact.key))
    assert [each.problem for each in dataset.verify() if each.problem] == []
    assert dataset.typed_grid_shards(grid=list(grid)).artifact.key == shards.artifact.key
    with pytest.raises(InputError, match="typed_grid_shards"):
        dataset.grid_shards()
    with pytest.raises(NotFoundError, match="weight"):
        shards.windows("pays", "even", (0, 1), [(0, 1)], column="weigth")


@settings(max_examples=examples(5), deadline=None)
@given(
    problem=typed_problems(),
    grid=st.sampled_from([(1, 1), (2, 2), (3, 2), (7, 1), (40, 3)]),
    permutation=st.sampled_from(KEYED),
)
def test_random_graphs(
    tmp_path_factory: pytest.TempPathFactory, problem: TypedProblem, grid: tuple[int, int], permutation: str
) -> None:
    folder = tmp_path_factory.mktemp("grid")
    dataset = Catalog(folder / "catalog").create("g")
    graph = ingest_kept(problem, dataset, folder)
    _check(shard_typed_grid(dataset, graph, GridOptions(grid, permutation), HERE), graph)
    assert [each.problem for each in dataset.verify() if each.problem] == []


def test_bytes_do_not_depend_on_memory_or_interruptions(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = Scratch(block_entries=60)
    dataset, here = ingest_shop(catalog.root, tmp_path / "tables", scratch=scratch), InProcessCluster(scratch=scratch)
    graph, options = dataset.typed_graph(), GridOptions((2, 3), "double")
    whole = shard_typed_grid(dataset, graph, options, here)
    dataset.remove_artifact("shards", whole.artifact.key)
    # Many runs, cells that are split on disk, and few columns at a time.
    for module, name in ((relation_cells, "rows_that_fit"), (typed_grid_plan, "rows_that_fit")):
        monkeypatch.setattr(module, name, lambda *_: 19)
    for module in (relation_cells, typed_grid_plan):
        monkeypatch.setattr(module, "run_entries", lambda _: 23)
        monkeypatch.setattr(module, "LOOKED_UP", 7)
    pieces, ran = run_in_steps(lambda cluster: shard_typed_grid(dataset, graph, options, cluster), 31, scratch=scratch)
    assert pieces.artifact.digest == whole.artifact.digest
    assert sum(name == "scatter_relation" for name, _ in ran) > 40
    what = graph, reverse_relations(dataset, graph, here), dataset.vertices_of_types(graph.artifact.key)
    planned = count(plan_of(*what, options, 1 << 30, TypedGridPlaces()).phases())
    assert sum(each.tasks for each in planned) == len({name for _, name in ran})


def test_blocks_of_other_edges_are_found(catalog: Catalog, tmp_path: Path) -> None:
    dataset = ingest_shop(catalog.root, tmp_path / "tables", users=20)
    shards = shard_typed_grid(dataset, dataset.typed_graph(), GridOptions((2, 2), "double"), HERE)
    path = "grid/even/000/001/relation/pays/edge"
    changed = replace_array(shards.artifact, path, lambda edge: edge[::-1])
    # The same numbers in another order are the same edges to a fingerprint of numbers; another number is not.
    check_artifact(dataset, changed)
    with pytest.raises(CorruptError, match="pays"):
        check_artifact(dataset, replace_array(shards.artifact, path, lambda edge: edge + 1))


def test_a_partition_orders_no_grid_of_types(catalog: Catalog, tmp_path: Path) -> None:
    dataset = ingest_shop(catalog.root, tmp_path / "tables", users=20)
    with pytest.raises(InputError, match="permutation"):
        shard_typed_grid(dataset, dataset.typed_graph(), GridOptions((2, 2), "partition"), HERE)
