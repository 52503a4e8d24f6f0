"""Every stage makes the same bytes on any number of worker processes as in one process; the workers start once.

Nor does it matter to a failure how many there are: when it is raised, no other task is still writing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.links.given.given_stage import GivenLinks, store_links
from gnnloom.pipeline.links.options import DrawOptions, FileOptions
from gnnloom.pipeline.links.relation.stage import draw_relation_links
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.pipeline.partition.partitioner import LevelSteps
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.partition.stochastic import batch_partition
from gnnloom.pipeline.shards.grid.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.shards.grid.typed_grid_stage import shard_typed_grid
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.shards.rows.typed_stage import shard_typed_rows
from gnnloom.pipeline.sources.format import open_edges
from gnnloom.pipeline.sources.generators.sbm import StochasticBlockModel
from gnnloom.pipeline.tasks.cluster import Cluster, InProcessCluster, for_work
from gnnloom.storage import Catalog
from gnnloom.storage.disk.work_folder import Scratch
from gnnloom.storage.errors import CorruptError
from support.commands import artifact_digests
from support.edge_files import write_edges
from support.fits import fit_by_hash
from support.graphs import random_adjacency, store_graph, store_vertices
from support.scratch import small_chunks
from support.typed_tables import random_problem

#: A few hundred keys or hashes for each range, and a few rows for each task, so that there are several.
SMALL_RANGES = Scratch(range_bytes=20_000, slice_bytes=1, task_pieces=2)
HERE = InProcessCluster(scratch=SMALL_RANGES)
NUMBERS = [pytest.param(2), *(pytest.param(number, marks=pytest.mark.long) for number in (1, 3, 4))]


@pytest.fixture(scope="module", params=NUMBERS, ids=lambda number: f"{number}-workers")
def workers(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of worker processes, which all tests here share."""
    with open_cluster(ClusterOptions(workers=request.param)) as cluster:
        cluster.scratch = SMALL_RANGES
        yield cluster


@pytest.mark.slow
def test_an_ingest(catalog: Catalog, tmp_path: Path, workers: Cluster) -> None:
    rng = np.random.default_rng(5)
    u, v = rng.integers(0, 9_000_000, (2, 30_000))
    source = write_edges(tmp_path / "edges", u, v, rng.random(30_000), range_edges=4200)
    digests = set()
    for number, cluster in enumerate((HERE, workers)):
        graph = ingest_graph(catalog.create(f"g{number}"), source, IngestOptions(ids="compact"), cluster)
        digests.add(graph.artifact.digest)
        graph.artifact.verify()
    assert len(digests) == 1


@pytest.mark.slow
def test_an_ingest_of_names_whatever_the_ranges_of_the_file(catalog: Catalog, tmp_path: Path, workers: Cluster) -> None:
    ends = np.random.default_rng(6).integers(0, 160, (800, 2)).tolist()
    lines = [f"v{a * 7919 % 160}\t{f'v{b}é'[: 3 + b % 5]}\t{c / 8}\n" for c, (a, b) in enumerate(ends)]
    (tmp_path / "edges.tsv").write_text("".join(lines), encoding="utf-8")
    options = IngestOptions(self_loops="keep", ids="compact", merge="first")
    digests = set()
    for number, cluster in enumerate((HERE, workers)):
        whole: Any = open_edges(None, [str(tmp_path / "edges.tsv")], {"weights": True})
        source = replace(whole, range_bytes=2000 * (number + 1))
        digests.add(ingest_graph(catalog.create(f"g{number}"), source, options, cluster).artifact.digest)
    assert len(digests) == 1


@pytest.mark.slow
def test_an_ingest_of_vertex_data(catalog: Catalog, workers: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    # Planned in the client only, so the workers need not know: many chunks.
    small_chunks(monkeypatch, 4096)
    model = StochasticBlockModel(4001, 10, num_features=9)
    adjacency = random_adjacency(4001, 20_000, 0, symmetric=True)
    digests = set()
    for number, cluster in enumerate((HERE, workers)):
        dataset = catalog.create(f"g{number}")
        store_graph(dataset, adjacency, symmetric=True)
        digests.add(ingest_vertices(dataset, model.vertices(), cluster).artifact.digest)
    assert len(digests) == 1


@pytest.mark.slow
@pytest.mark.parametrize("few", [0, pytest.param(1 << 23, marks=pytest.mark.long)])
def test_a_multilevel_partition(catalog: Catalog, workers: Cluster, few: int) -> None:
    steps = LevelSteps(few_pins=few, rounds=2, random_passes=2)
    adjacency = random_adjacency(1500, 10000, 1, symmetric=False)
    options = PartitionOptions(70, "multilevel", preset="flat", imbalance=0.1)
    digests = set()
    for number, cluster in enumerate((HERE, workers)):
        dataset = catalog.create(f"g{number}")
        graph = store_graph(dataset, adjacency, symmetric=False)
        digests.add(partition_graph(dataset, graph, options, cluster, steps=steps).artifact.digest)
    assert len(digests) == 1


@pytest.mark.long
def test_a_stochastic_partition(catalog: Catalog, workers: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_partition, "fit_apart", fit_by_hash)
    options = PartitionOptions(4, model="stochastic", imbalance=0.05, batches="walk", batch_rate=0.3)
    adjacency = random_adjacency(500, 4000, 1, symmetric=False)
    found = []
    for number, cluster in enumerate((HERE, workers)):
        dataset = catalog.create(f"g{number}")
        graph = store_graph(dataset, adjacency, symmetric=False, num_blocks=3)
        partition = partition_graph(dataset, graph, options, cluster)
        found.append((partition.artifact.digest, partition.quality))
    assert found[0] == found[1]


@pytest.mark.slow
def test_row_shards_and_the_figures_of_their_partition(catalog: Catalog, workers: Cluster) -> None:
    found = []
    for number, cluster in enumerate((HERE, workers)):
        dataset = catalog.create(f"g{number}")
        adjacency = random_adjacency(300, 2000, 0, symmetric=False)
        graph = store_graph(dataset, adjacency, symmetric=False, num_blocks=5)
        store_vertices(dataset, np.random.default_rng(0).random((300, 4)), np.arange(300) % 3, None)
        partition = partition_graph(dataset, graph, PartitionOptions(4, method="random"), cluster)
        shards = shard_rows(dataset, partition, cluster)
        found.append((partition.artifact.digest, shards.artifact.digest, shards.quality))
    assert found[0] == found[1]


@pytest.mark.slow
def test_grid_shards_and_little_memory(catalog: Catalog, workers: Cluster) -> None:
    adjacency = random_adjacency(3000, 40_000, 5, symmetric=False)
    digests = set()
    for number, cluster in enumerate((HERE, workers, InProcessCluster(450 << 20))):
        dataset = catalog.create(f"g{number}")
        store_graph(dataset, adjacency, symmetric=False, num_blocks=5)
        store_vertices(dataset, np.ones((3000, 4)), np.zeros(3000, int), np.ones(3000, int))
        shards = shard_grid(dataset, dataset.graph(), GridOptions((3, 2)), cluster)
        digests.add(shards.artifact.digest)
        shards.artifact.verify()
    assert len(digests) == 1


@pytest.mark.long
def test_links(catalog: Catalog, tmp_path: Path, workers: Cluster) -> None:
    ends = np.random.default_rng(6).integers(0, 500, (4000, 2))
    (tmp_path / "edges.txt").write_text("".join(f"v{a} v{b}\n" for a, b in ends.tolist()))
    (tmp_path / "pairs.txt").write_text("".join(f"v{a} v{b}\n" for a, b in ends[:200].tolist() if a != b))
    found = []
    for number, cluster in enumerate((HERE, workers)):
        dataset = catalog.create(f"g{number}")
        source = open_edges(None, [str(tmp_path / "edges.txt")])
        graph = ingest_graph(dataset, source, IngestOptions(undirected=True, ids="names"), HERE)
        draw_links(dataset, graph, DrawOptions(disjoint=0.3), cluster)
        files = FileOptions(valid=str(tmp_path / "pairs.txt"), test=str(tmp_path / "pairs.txt"), allow_overlap=True)
        store_links(dataset, graph, GivenLinks.of(files), cluster)
        typed = catalog.create(f"t{number}")
        whole = random_problem(3, 4000).ingest(typed, tmp_path / "tables", HERE, IngestOptions(merge="keep"))
        draw_relation_links(typed, whole.relation("knows"), DrawOptions(relation="knows", disjoint=0.3), cluster)
        found.append((artifact_digests(dataset), artifact_digests(typed)))
        assert [len(each) for each in found[-1]] == [5, 3]
    assert found[0] == found[1]


@pytest.mark.slow
def test_shards_of_types(catalog: Catalog, tmp_path: Path, workers: Cluster) -> None:
    found = []
    for number, cluster in enumerate((HERE, workers)):
        dataset = catalog.create(f"g{number}")
        graph = random_problem(3, 4000).ingest(dataset, tmp_path / "tables", HERE, IngestOptions(merge="keep"))
        options = PartitionOptions(3, "random", reverse=True, replicate=("auto",))
        shard_typed_rows(dataset, partition_graph(dataset, graph, options, cluster), cluster)
        shard_typed_grid(dataset, graph, GridOptions((3, 2), "double"), cluster)
        found.append(artifact_digests(dataset))
    assert found[0] == found[1]


def test_workers_that_were_asked_for_do_even_short_work(workers: Cluster) -> None:
    assert for_work(workers, 0.0) is workers


def _work(item: tuple[Path, bool]) -> int:
    folder, fails = item
    if fails:
        # After the other one has begun.
        while not (folder / "begun").exists():
            time.sleep(0.02)
        raise CorruptError("damaged")
    (folder / "begun").touch()
    time.sleep(1.5)
    (folder / "written").touch()
    return 0


@pytest.mark.slow
def test_a_failure_is_raised_after_running_tasks_have_ended(tmp_path: Path, workers: Cluster) -> None:
    with pytest.raises(CorruptError, match="damaged"):
        list(workers.map(_work, [(tmp_path, False), (tmp_path, True)]))
    assert (tmp_path / "written").exists()
