"""Ids and offsets out of range are refused by whoever reads them, although every checksum and digest is right."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from gnnloom.pipeline.shards.grid.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.graph import Graph
from gnnloom.storage.artifacts.mapped_vertices import map_vertices
from gnnloom.storage.artifacts.part_members import map_part_members
from gnnloom.storage.artifacts.partition import Partition
from gnnloom.storage.artifacts.stored_csr import StoredCSR
from gnnloom.storage.artifacts.vertices import Vertices
from gnnloom.storage.artifacts.whole_graph import map_whole_graph, read_whole_graph
from gnnloom.storage.errors import CorruptError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.shards.block_ranges import row_ranges
from gnnloom.storage.shards.grid_shards import GridShards
from gnnloom.storage.shards.row_shards import RowShards
from support.damage import edit_manifest, replace_array
from support.graphs import random_adjacency, store_graph, store_vertices
from support.partitions import random_parts, store_partition
from support.shards import store_row_shards

NUM_VERTICES = 300


Change = Callable[[np.ndarray], np.ndarray]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset that each test copies."""
    root = tmp_path_factory.mktemp("stored")
    dataset = Catalog(root).create("web")
    adjacency = random_adjacency(NUM_VERTICES, 1500, 0, symmetric=False)
    graph = store_graph(dataset, adjacency, symmetric=False, num_blocks=2)
    part = random_parts(NUM_VERTICES, 2, 1)
    store_partition(dataset, graph, part, 2)
    label, split = np.arange(NUM_VERTICES) % 5, np.arange(NUM_VERTICES) % 4
    store_vertices(dataset, np.ones((NUM_VERTICES, 2)), label, split)
    store_row_shards(dataset, adjacency, part, 2, symmetric=False, label=label, split=split)
    shard_grid(dataset, graph, GridOptions((2, 2), "none"), InProcessCluster())
    return root


@pytest.fixture
def dataset(stored: Path, tmp_path: Path) -> Dataset:
    shutil.copytree(stored, tmp_path / "catalog")
    return Catalog(tmp_path / "catalog")["web"]


def last(value: int) -> Change:
    def change(array: np.ndarray) -> np.ndarray:
        return np.append(array[:-1], value)

    return change


def falling(array: np.ndarray) -> np.ndarray:
    return np.concatenate([array[: len(array) // 2], array[-1:] + 5, array[len(array) // 2 + 1 :]])


class Damage:
    """Changes an array of an artifact over and over, each time from what it was at first."""

    def __init__(self, artifact: Artifact, array: str) -> None:
        self._artifact, self._array = artifact, array
        self._sound = artifact.array(array).read()

    def __call__(self, change: Change) -> Artifact:
        self._artifact = replace_array(self._artifact, self._array, lambda _: change(self._sound))
        return self._artifact


def read_shard(artifact: Artifact, *, on_disk: bool) -> None:
    for transpose in (False, True):
        matrix = RowShards(artifact).shard(1, on_disk=on_disk).operand(transpose)
        for block in (matrix.own, matrix.halo):
            if isinstance(block, StoredCSR):
                list(block.blocks())


GRAPH_READERS: tuple[Callable[[Artifact], object], ...] = (
    lambda artifact: list(Graph(artifact).blocks()),
    lambda artifact: read_whole_graph(Graph(artifact)),
    lambda artifact: map_whole_graph(Graph(artifact)),
)
SHARD_READERS: tuple[Callable[[Artifact], object], ...] = (
    partial(read_shard, on_disk=False),
    partial(read_shard, on_disk=True),
)
OUTSIDE = (-1, 307, 2_000_000_000)
BROKEN: tuple[Change, ...] = (last(10**9), falling, last(3))


def test_a_column_outside_the_graph_is_refused(dataset: Dataset) -> None:
    damage = Damage(dataset.find("graph"), "block/00001/indices")
    for value, read in product(OUTSIDE, GRAPH_READERS):
        artifact = damage(last(value))
        with pytest.raises(CorruptError, match=rf"block/00001/indices/c/0.*{value}.*expected 0 to 299"):
            read(artifact)


def _all_row_ranges(artifact: Artifact) -> object:
    return list(row_ranges(Graph(artifact), 1))


def test_row_pointers_of_a_graph_must_ascend_to_its_nonzeros(dataset: Dataset) -> None:
    damage = Damage(dataset.find("graph"), "block/00001/indptr")
    for change, read in product(BROKEN, (*GRAPH_READERS, _all_row_ranges)):
        artifact = damage(change)
        with pytest.raises(CorruptError, match=r"block/00001/indptr: "):
            read(artifact)


@pytest.mark.parametrize("array", ["own/indices", "halo/indices", "transpose/own/indices", "send_row", "halo_vertex"])
def test_an_id_outside_a_shard_is_refused(dataset: Dataset, array: str) -> None:
    damage = Damage(dataset.find("shards", layout="row"), f"row/00001/{array}")
    for value, read in product(OUTSIDE, SHARD_READERS):
        artifact = damage(last(value))
        with pytest.raises(CorruptError, match=rf"{array}/c/0.*{value}.*expected 0 to"):
            read(artifact)


@pytest.mark.parametrize("array", ["own/indptr", "transpose/halo/indptr", "halo_offset", "send_offset"])
def test_offsets_of_a_shard_must_ascend_to_their_end(dataset: Dataset, array: str) -> None:
    damage = Damage(dataset.find("shards", layout="row"), f"row/00001/{array}")
    for change, read in product(BROKEN, SHARD_READERS):
        artifact = damage(change)
        with pytest.raises(CorruptError, match=rf"{array}: (ends at|falls)"):
            read(artifact)


@pytest.mark.parametrize(("array", "value"), [("vertex", 300), ("vertex", -5), ("split", 4)])
def test_vertices_and_splits_of_a_shard_are_checked(dataset: Dataset, array: str, value: int) -> None:
    artifact = replace_array(dataset.find("shards", layout="row"), f"row/00001/{array}", last(value))
    with pytest.raises(CorruptError, match=rf"{array}/c/0.*{value}"):
        RowShards(artifact).shard(1).read(array)


def test_a_part_that_there_is_not_is_refused(dataset: Dataset) -> None:
    damage = Damage(dataset.find("partition"), "part")
    for value in (-1, 2):
        partition = Partition(damage(last(value)))
        for read in (partition.part, lambda partition=partition: map_part_members(partition)):
            with pytest.raises(CorruptError, match=rf"part/c/0.*{value}.*expected 0 to 1"):
                read()


@pytest.mark.parametrize(("array", "value"), [("label", 5), ("label", -2), ("split", 4)])
def test_a_label_or_split_that_there_is_not_is_refused(dataset: Dataset, array: str, value: int) -> None:
    vertices = Vertices(replace_array(dataset.find("vertices"), array, last(value)))
    for read in (getattr(vertices, array), lambda: map_vertices(vertices)):
        with pytest.raises(CorruptError, match=rf"{array}/c/0.*{value}"):
            read()


def test_a_cell_of_a_grid_is_checked_in_every_window(dataset: Dataset) -> None:
    grid = GridShards(dataset.find("shards", layout="grid"))
    # A few columns of all rows are read from the transposed variant.
    for variant, columns in (("even", (0, 300)), ("even_transposed", (290, 300))):
        path = f"grid/{grid.stored_variant(variant)}/001/001"
        changes = [("indices", last(150)), ("indices", last(-1)), *(("indptr", change) for change in BROKEN[::2])]
        for array, change in changes:
            damage = Damage(grid.artifact, f"{path}/{array}")
            artifact = damage(change)
            with pytest.raises(CorruptError, match=rf"{path}/{array}.*(expected 0 to|falls)"):
                GridShards(artifact).windows("even", (0, NUM_VERTICES), [columns])
            damage(np.copy)


def shortened(array: np.ndarray) -> np.ndarray:
    return array[:-1] if array[-1] == array[-2] else np.append(array[:-2], array[-1])


@pytest.mark.parametrize("array", ["own/indptr", "halo/indptr", "transpose/own/indptr"])
def test_blocks_of_a_shard_must_have_its_rows(dataset: Dataset, array: str) -> None:
    artifact = replace_array(dataset.find("shards", layout="row"), f"row/00001/{array}", shortened)
    for read in SHARD_READERS:
        with pytest.raises(CorruptError, match=rf"{array}:.*153.*154"):
            read(artifact)


@pytest.mark.parametrize("array", ["halo_offset", "send_offset", "transpose/send_offset"])
def test_a_rank_does_not_wait_for_itself(dataset: Dataset, array: str) -> None:
    # Rank 1 exchanges rows with rank 0 only: its offsets are 0, n, n.
    artifact = replace_array(dataset.find("shards", layout="row"), f"row/00001/{array}", lambda old: old[[0, 0, 2]])
    for read in SHARD_READERS:
        with pytest.raises(CorruptError, match=rf"{array}:"):
            read(artifact)


def test_ranges_of_a_grid_must_have_their_rows(dataset: Dataset) -> None:
    grid = GridShards(dataset.find("shards", layout="grid"))
    path = f"grid/{grid.stored_variant('even')}/001/001/indptr"
    artifact = replace_array(grid.artifact, path, shortened)
    with pytest.raises(CorruptError, match=rf"{path}: 150 rows, expected 151"):
        GridShards(artifact).window("even", (0, NUM_VERTICES), (0, NUM_VERTICES))


def test_degrees_are_checked(dataset: Dataset) -> None:
    graph = Graph(replace_array(dataset.find("graph"), "degree", last(-1)))
    with pytest.raises(CorruptError, match=r"degree/c/0: -1 at position 299"):
        graph.degree()


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"block_rows": [0, 200, 100]}, "falls from"),
        ({"block_rows": [0, 300]}, "2 for 2 blocks"),
        ({"block_rows": [0, 150, 299]}, "ends at"),
        ({"block_nnz": [10**9, 1 - 10**9]}, "the manifest says"),
        ({"nnz": 10**12}, "the manifest says"),
    ],
)
def test_facts_of_a_graph_are_checked_before_anything_is_read(
    dataset: Dataset, facts: dict[str, object], message: str
) -> None:
    artifact = dataset.find("graph")
    edited = edit_manifest(artifact, facts=artifact.facts | facts)
    for read in GRAPH_READERS:
        with pytest.raises(CorruptError, match=message):
            read(edited)
