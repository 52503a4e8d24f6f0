"""Tasks of row and grid shards share files: few opens, each file once, and a resume that notices what was lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.pipeline.shards.grid.grid_stage import shard_grid
from gnnloom.pipeline.shards.rows import row_shuffles
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.shards.shard_options import GridOptions
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.disk.work_folder import BESIDE, Scratch
from gnnloom.storage.format.artifact import Artifact
from support.covering import few_of
from support.graphs import random_adjacency, store_graph, store_vertices
from support.partitions import random_parts, store_partition
from support.scratch import merging
from support.stopping import StoppedError, StoppingCluster

#: More than the files that they share.
NUM_VERTICES, NUM_BLOCKS, PARTS = 300, 20, 3
HERE = InProcessCluster()
#: Folder of the work folder with the files that tasks share.
SHARED = "shuffle/"


class OpensCluster(InProcessCluster):
    """Lists the shared files that each task opens to read, as often as it does.

    Attributes:
        opened: for each task, the name of its function and these files, relative to the work folder.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, scratch: Scratch) -> None:
        super().__init__(scratch=scratch)
        self.opened: list[tuple[str, list[str]]] = []
        self._plain = os.open
        monkeypatch.setattr(os, "open", self._open)

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        for item in items:
            self.opened.append((function.__name__, []))
            yield function(item)
        self.opened.append(("client", []))

    def _open(self, path: Any, flags: int, *others: Any, **more: Any) -> int:
        descriptor = self._plain(path, flags, *others, **more)
        _, _, inner = os.fspath(path).partition("/.work/")
        if self.opened and flags & os.O_ACCMODE == os.O_RDONLY and inner.startswith(SHARED) and Path(path).is_file():
            self.opened[-1][1].append(inner)
        return descriptor

    def of(self, function: str) -> list[list[str]]:
        """The files of each task of a function."""
        return [files for name, files in self.opened if name == function]


@pytest.fixture
def dataset(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """A graph of 20 blocks, which no task merges, with as many ranges of vertex data."""
    bounds = [NUM_VERTICES * number // NUM_BLOCKS for number in range(NUM_BLOCKS + 1)]
    monkeypatch.setattr(row_shuffles, "vertex_ranges", lambda *_: bounds)
    return store(catalog, "g")


def store(catalog: Catalog, name: str) -> Dataset:
    dataset = catalog.create(name)
    adjacency = random_adjacency(NUM_VERTICES, 4000, 0, symmetric=True)
    graph = store_graph(dataset, adjacency, symmetric=True, num_blocks=NUM_BLOCKS)
    store_partition(dataset, graph, random_parts(NUM_VERTICES, PARTS, 1), PARTS)
    store_vertices(dataset, np.random.default_rng(1).normal(size=(NUM_VERTICES, 2)), np.arange(NUM_VERTICES) % 4, None)
    return dataset


def cut_rows(dataset: Dataset, cluster: InProcessCluster) -> Artifact:
    return shard_rows(dataset, dataset.partition(PARTS), cluster).artifact


def cut_grid(dataset: Dataset, cluster: InProcessCluster) -> Artifact:
    return shard_grid(dataset, dataset.graph(), GridOptions((3, 2)), cluster).artifact


STAGES = {"row": cut_rows, "grid": cut_grid}
on_stages = pytest.mark.parametrize("layout", STAGES)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The digest of what each stage makes of the dataset if nothing disturbs it and nothing is merged."""
    dataset = store(Catalog(tmp_path_factory.mktemp("whole")), "g")
    return {layout: cut(dataset, HERE).digest for layout, cut in STAGES.items()}


def read_by(cluster: OpensCluster, function: str) -> list[dict[str, list[str]]]:
    """For each task of a function, the files that it opened, by their folder."""
    tasks = []
    for files in cluster.of(function):
        assert len(files) == len(set(files)), f"{function} opens a file twice"
        folders = {str(Path(file).parent) for file in files}
        tasks.append({folder: [file for file in files if Path(file).parent == Path(folder)] for folder in folders})
    return tasks


@pytest.mark.parametrize("fan_in", [NUM_BLOCKS, 18, pytest.param(4, marks=pytest.mark.long)])
def test_a_rank_opens_each_of_at_most_16_files_once(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, fan_in: int
) -> None:
    cluster = OpensCluster(monkeypatch, merging(fan_in))
    cut_rows(dataset, cluster)
    ranks = read_by(cluster, "shard_rank")
    assert len(ranks) == PARTS
    for folders in ranks:
        # The matrix, and the vertex data.
        assert len(folders) == 2
        assert max(map(len, folders.values())) <= BESIDE.files
        if fan_in == NUM_BLOCKS:
            assert {len(files) for files in folders.values()} == {BESIDE.files}
    merged = read_by(cluster, "merge_runs")
    assert (merged == []) is (fan_in == NUM_BLOCKS)
    for folders in merged:
        (files,) = folders.values()
        assert 0 < len(files) <= min(fan_in, BESIDE.files)


@pytest.mark.parametrize("fan_in", [NUM_BLOCKS, 18, pytest.param(4, marks=pytest.mark.long)])
def test_a_cell_opens_each_of_at_most_16_files_once(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, fan_in: int
) -> None:
    cluster = OpensCluster(monkeypatch, merging(fan_in))
    cut_grid(dataset, cluster)
    cells, merged = read_by(cluster, "write_cell"), read_by(cluster, "merge_runs")
    assert len(cells) == 2 * 6
    assert (merged == []) is (fan_in == NUM_BLOCKS)
    for folders in [*cells, *merged]:
        (files,) = folders.values()
        assert 0 < len(files) <= min(fan_in, BESIDE.files)
        if fan_in == NUM_BLOCKS:
            assert len(files) == BESIDE.files


def stopped(layout: str, dataset: Dataset, after: str, fan_in: int = NUM_BLOCKS) -> tuple[StoppingCluster, Path]:
    """Run a stage until a task of a function has run; returns what ran, and the work folder."""

    class StopAfter(StoppingCluster):
        def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
            for item, result in zip(items, super().map(function, items), strict=True):
                if function.__name__ == after:
                    raise StoppedError(item.name)
                yield result

    cluster = StopAfter(scratch=merging(fan_in))
    with pytest.raises(StoppedError):
        STAGES[layout](dataset, cluster)
    (work,) = dataset.path.glob("shards/*/.work")
    return cluster, work


def resumed(layout: str, dataset: Dataset, fan_in: int = NUM_BLOCKS) -> tuple[Artifact, list[str]]:
    """Run a stage to its end; returns what it made and the functions that ran."""
    cluster = StoppingCluster(scratch=merging(fan_in))
    return STAGES[layout](dataset, cluster), [name for name, _ in cluster.ran]


ROUTE = {"row": "route_block", "grid": "scatter_to_cells"}
WRITE = {"row": "shard_rank", "grid": "write_cell"}
#: Files of the first matrix.
FOLDERS = {"row": "shuffle/forward", "grid": "shuffle/cells/even"}


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "fan_in"), few_of(list(STAGES), [NUM_BLOCKS, 4], together=1))
def test_lanes_of_many_pages_give_the_same_bytes(
    whole: dict[str, str], dataset: Dataset, layout: str, fan_in: int
) -> None:
    cluster = InProcessCluster(scratch=merging(fan_in, Scratch(page_bytes=100)))
    assert STAGES[layout](dataset, cluster).digest == whole[layout]


@pytest.mark.parametrize(("layout", "damage"), few_of(list(STAGES), ["removed", "cut", "flipped"], together=1))
def test_only_tasks_whose_file_is_damaged_run_again(
    whole: dict[str, str], dataset: Dataset, layout: str, damage: str
) -> None:
    _, work = stopped(layout, dataset, WRITE[layout])
    file = min(file for file in (work / FOLDERS[layout]).rglob("lanes-*") if file.stat().st_size)
    if damage == "removed":
        file.unlink()
    elif damage == "cut":
        os.truncate(file, 10)
    else:
        content = bytearray(file.read_bytes())
        content[20] ^= 1
        file.write_bytes(content)
    artifact, ran = resumed(layout, dataset)
    # Blocks 0 and 16.
    assert ran.count(ROUTE[layout]) == 2
    assert artifact.digest == whole[layout]


@pytest.mark.slow
@on_stages
def test_rows_that_were_merged_are_routed_again_only_if_merged_files_are_lost(
    whole: dict[str, str], dataset: Dataset, layout: str
) -> None:
    _, work = stopped(layout, dataset, WRITE[layout], 4)
    assert len(levels_on_disk(work, layout)) == 1
    again, _ = stopped(layout, dataset, WRITE[layout], 4)
    assert [name for name, _ in again.ran] == [WRITE[layout]]
    kept = levels_on_disk(work, layout)
    assert len(kept) == 1
    next(file for file in kept[0].glob("lanes-*") if file.stat().st_size).unlink()
    artifact, ran = resumed(layout, dataset, 4)
    # Of one matrix, all blocks.
    assert ran.count(ROUTE[layout]) == NUM_BLOCKS
    assert artifact.digest == whole[layout]


def levels_on_disk(work: Path, layout: str) -> list[Path]:
    """Folders with files of the first matrix."""
    return sorted({file.parent for file in (work / FOLDERS[layout]).rglob("lanes-*")})


@on_stages
def test_files_that_no_task_needs_any_more_are_not_made_again(
    whole: dict[str, str], dataset: Dataset, layout: str
) -> None:
    after = {"row": "write_send_lists", "grid": "write_bucket"}[layout]
    _, work = stopped(layout, dataset, after)
    shutil.rmtree(work / FOLDERS[layout])
    artifact, ran = resumed(layout, dataset)
    assert ROUTE[layout] not in ran
    assert artifact.digest == whole[layout]
