"""Invariants find wrong graphs, partitions and shards, even if every digest is right."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.pipeline.shards.grid.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.checks.invariants import check_artifact
from gnnloom.storage.errors import GnnloomError
from gnnloom.storage.format.artifact import Artifact
from support.damage import edit_manifest, replace_array
from support.graphs import random_adjacency, store_graph, store_vertices
from support.partitions import random_parts, store_partition
from support.shards import store_row_shards

Change = Callable[[np.ndarray], Any]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every variant of the dataset; each test copies the one it needs."""
    root = tmp_path_factory.mktemp("stored")
    for symmetric in (False, True):
        for weighted in (False, True):
            write_everything(Catalog(root / f"{symmetric}-{weighted}"), symmetric=symmetric, weighted=weighted)
    return root


@pytest.fixture
def store_everything(stored: Path, tmp_path: Path) -> Callable[..., Dataset]:
    def copy(*, symmetric: bool, weighted: bool = False) -> Dataset:
        shutil.copytree(stored / f"{symmetric}-{weighted}", tmp_path / "catalog")
        return Catalog(tmp_path / "catalog")["web"]

    return copy


def write_everything(catalog: Catalog, *, symmetric: bool, weighted: bool) -> None:
    dataset = catalog.create("web")
    adjacency = random_adjacency(90, 400, 3, symmetric=symmetric)
    if weighted:
        adjacency.data = np.random.default_rng(0).uniform(1, 2, adjacency.nnz)
        adjacency = adjacency + adjacency.T if symmetric else adjacency
        adjacency.data = adjacency.data.astype(np.float32).astype(np.float64)
    graph = store_graph(dataset, adjacency, symmetric=symmetric, weighted=weighted)
    part = random_parts(90, 3, 1)
    store_partition(dataset, graph, part, 3)
    label = np.arange(90) % 5 - 1
    store_vertices(dataset, np.ones((90, 2)), label, np.arange(90) % 4)
    store_row_shards(dataset, adjacency, part, 3, symmetric=symmetric, label=label, weighted=weighted)
    for permutation in ("none", "double") if symmetric else ("single",):
        shard_grid(dataset, graph, GridOptions((2, 3), permutation, seed=2), InProcessCluster())


def check_all(dataset: Dataset) -> None:
    for info in dataset.artifacts():
        artifact = Artifact(info.path)
        artifact.verify()
        check_artifact(dataset, artifact)


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
def test_sound_artifacts_pass(store_everything: Callable[..., Dataset], symmetric: bool, weighted: bool) -> None:
    check_all(store_everything(symmetric=symmetric, weighted=weighted))


def test_an_empty_graph_passes(catalog: Catalog) -> None:
    dataset = catalog.create("web")
    store_graph(dataset, random_adjacency(0, 0, 0, symmetric=True), symmetric=True)
    store_graph(dataset, random_adjacency(7, 0, 0, symmetric=False, loops=False), symmetric=False)
    check_all(dataset)


def swapped(array: np.ndarray) -> np.ndarray:
    """The array with its first two entries exchanged."""
    return array[[1, 0, *range(2, len(array))]]


def with_value(position: int, value: int) -> Change:
    def change(array: np.ndarray) -> np.ndarray:
        array[position] = value
        return array

    return change


def moved_entry(indices: np.ndarray) -> np.ndarray:
    """Another column in one row, chosen so that the row still ascends."""
    position = next(k for k in range(len(indices) - 1) if indices[k + 1] > indices[k] + 1)
    indices[position] += 1
    return indices


@pytest.mark.parametrize(
    ("array", "change", "message"),
    [
        ("block/00000/indptr", with_value(0, 1), "begin at 0"),
        ("block/00001/indptr", with_value(3, 10_000), "falls from 10000"),
        ("block/00001/indptr", lambda a: with_value(-1, a[-1] - 1)(a), "ends at"),
        ("block/00001/indptr", lambda a: with_value(4, a[4] - 1)(a), "degree: vertex 33|ascend within"),
        ("block/00000/indices", swapped, "ascend within the row"),
        ("block/00000/indices", with_value(1, 90), "is 90, expected ids"),
        ("block/00002/indices", with_value(0, -1), "is -1, expected ids"),
        ("block/00000/indices", moved_entry, "differs from its transpose"),
        ("degree", with_value(17, 99), "degree: vertex 17"),
    ],
)
def test_a_damaged_graph_is_found_though_its_digest_is_right(
    store_everything: Callable[..., Dataset], array: str, change: Change, message: str
) -> None:
    dataset = store_everything(symmetric=True)
    artifact = replace_array(dataset.graph().artifact, array, change)
    artifact.verify()
    with pytest.raises(GnnloomError, match=message):
        check_artifact(dataset, artifact)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"nnz": 3}, "the manifest says 3"),
        ({"block_rows": [0, 30, 60, 80]}, "block_rows"),
        ({"block_rows": [0, 40, 60, 90]}, "rows with"),
        ({"block_nnz": [1, 1, 1]}, "the manifest says"),
        ({"block_rows": None}, "not the manifest of a graph"),
    ],
)
def test_wrong_facts_of_a_graph_are_found(
    store_everything: Callable[..., Dataset], facts: dict[str, Any], message: str
) -> None:
    dataset = store_everything(symmetric=True)
    artifact = dataset.graph().artifact
    artifact = edit_manifest(artifact, facts=artifact.facts | facts)
    with pytest.raises(GnnloomError, match=message):
        check_artifact(dataset, artifact)


def test_a_weight_that_breaks_the_symmetry_is_found(store_everything: Callable[..., Dataset]) -> None:
    dataset = store_everything(symmetric=True, weighted=True)
    artifact = replace_array(dataset.graph().artifact, "block/00000/data", with_value(1, 7))
    with pytest.raises(GnnloomError, match="differs from its transpose"):
        check_artifact(dataset, artifact)


def test_a_transpose_of_another_graph_is_found(store_everything: Callable[..., Dataset]) -> None:
    dataset = store_everything(symmetric=False)
    artifact = replace_array(dataset.find("transpose"), "block/00000/indices", moved_entry)
    with pytest.raises(GnnloomError, match="is not the transpose of graph/"):
        check_artifact(dataset, artifact)


@pytest.mark.parametrize(
    ("kind", "array", "value", "message"),
    [
        ("partition", "part", 3, r"vertex 5 has 3, expected 0\.\.2"),
        ("partition", "part", -1, r"vertex 5 has -1, expected 0\.\.2"),
        ("vertices", "label", 4, r"vertex 5 has 4, expected -1\.\.3"),
        ("vertices", "label", -2, r"vertex 5 has -2, expected -1\.\.3"),
        ("vertices", "split", 4, r"vertex 5 has 4, expected 0\.\.3"),
    ],
)
def test_values_out_of_range_are_found(
    store_everything: Callable[..., Dataset], kind: str, array: str, value: int, message: str
) -> None:
    dataset = store_everything(symmetric=True)
    artifact = replace_array(dataset.find(kind), array, with_value(5, value))
    with pytest.raises(GnnloomError, match=message):
        check_artifact(dataset, artifact)


def other_vertex(vertex: np.ndarray) -> np.ndarray:
    """Vertices of which one is on two ranks and another on none; still ascending."""
    position = next(k for k in range(len(vertex) - 1) if vertex[k + 1] > vertex[k] + 1)
    vertex[position] += 1
    return vertex


@pytest.mark.parametrize(
    ("array", "change", "message"),
    [
        ("vertex", other_vertex, "are not the 90 vertices"),
        ("vertex", swapped, "ascending ids"),
        ("halo_offset", with_value(1, -1), "halo_offset: falls"),
        ("halo_offset", lambda a: with_value(1, a[1] + 1)(a), "halo_offset: falls|with itself"),
        ("halo_vertex", swapped, "ascending ids"),
        ("halo_vertex", moved_entry, "do not send the rows that others wait for"),
        ("send_row", with_value(0, 500), r"send_row.*500 at position 0, expected 0 to 29"),
        ("send_row", swapped, "ascending ids"),
        ("own/indices", with_value(0, 89), "ascend within the row"),
        ("halo/indptr", with_value(0, 1), "begin at 0"),
    ],
)
@pytest.mark.parametrize("symmetric", [False, True])
def test_damaged_row_shards_are_found(
    store_everything: Callable[..., Dataset], array: str, change: Change, message: str, symmetric: bool
) -> None:
    dataset = store_everything(symmetric=symmetric)
    artifact = replace_array(dataset.find("shards", layout="row"), f"row/00001/{array}", change)
    artifact.verify()
    with pytest.raises(GnnloomError, match=message):
        check_artifact(dataset, artifact)


def test_grid_cells_with_entries_outside_are_found(store_everything: Callable[..., Dataset]) -> None:
    dataset = store_everything(symmetric=True)
    grid = dataset.find("shards", layout="grid", permutation="double")
    artifact = replace_array(grid, "grid/even/001/002/indices", with_value(0, 30))
    with pytest.raises(GnnloomError, match=r"is 30, expected ids .* 0\.\.29"):
        check_artifact(dataset, artifact)
