"""Another package adds samplers and a mode of training, each in one file, and the command line knows them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.sources.generators.sbm import StochasticBlockModel
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.artifacts.whole_graph import map_whole_graph
from support.plugins import InstalledProgram

TRAIN = ("graph", "--hidden", "4", "--epochs", "3", "--sampler-threads", "0", "--batch-size", "20")


class Installed:
    """A catalog to sample from, and an environment in which the sampler and the mode are installed."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.catalog = Catalog(folder / "catalog")
        model = StochasticBlockModel(num_vertices=60, num_edges=240, num_blocks=3, num_features=5, seed=2)
        dataset, cluster = self.catalog.create("graph"), InProcessCluster()
        graph = ingest_graph(dataset, model.edges(), IngestOptions(undirected=True), cluster)
        ingest_vertices(dataset, model.vertices(), cluster)
        shard_rows(dataset, partition_graph(dataset, graph, PartitionOptions(1, "block"), cluster), cluster)
        self.program = InstalledProgram(environment, alone=True)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.program.run("--catalog", str(self.catalog.root), *arguments)

    def train(self, *arguments: str) -> dict[str, Any]:
        return self.result("train", *TRAIN, "--batches", "1", *arguments)

    def result(self, *arguments: str) -> dict[str, Any]:
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, added_packages: dict[str, str]) -> Iterator[Installed]:
    installed = Installed(tmp_path_factory.mktemp("added"), added_packages)
    yield installed
    installed.program.close()


@pytest.mark.slow
def test_an_added_sampler_is_projected_trains_and_is_reported(installed: Installed, tmp_path: Path) -> None:
    chosen = ("--mode", "subgraph", "--sampler", "stretch", "--stretch-step", "2")
    planned = installed.train(*chosen, "--plan")
    assert planned["batch_memory"] > 0
    found = installed.train(*chosen, "--run", "stretched")
    assert (found["mode"], len(found["loss"])) == ("subgraph", 3)
    assert found["loss"] != installed.train(*chosen[:-2], "--run", "next")["loss"]
    config = json.loads((installed.catalog["graph"].run_path("stretched") / "config.json").read_text())
    assert config["mode_options"] == ["stretch_step=2"]
    assert installed.run("report", "graph/stretched", "--out", str(tmp_path / "report.html")).returncode == 0


def test_an_added_mode_is_projected_and_trains_with_an_added_sampler(installed: Installed) -> None:
    chosen = ("--mode", "again", "--sampler", "stretch")
    planned = installed.train(*chosen, "--again-rounds", "2", "--plan")
    assert planned["mapped_bytes"] > 0
    once, twice = (installed.train(*chosen, "--again-rounds", n, "--run", f"again-{n}")["loss"] for n in ("1", "2"))
    subgraph = installed.train("--mode", "subgraph", "--sampler", "stretch", "--run", "plain")["loss"]
    assert once == subgraph
    assert twice != once


@pytest.mark.slow
def test_an_added_neighbor_sampler_is_projected_trains_and_is_stored(installed: Installed) -> None:
    drawn = ("--fanout", "2,1", "--neighbor-sampler", "lowest")
    chosen = (*TRAIN, "--mode", "neighbor", *drawn)
    assert installed.result("train", *chosen, "--plan")["batch_memory"] > 0
    losses = installed.result("train", *chosen, "--run", "lowest")["loss"]
    assert losses != installed.result("train", *chosen[:-2], "--run", "uniform")["loss"]
    key = installed.result("sample", "graph", *drawn, "--batch-size", "20", "--epochs", "3")["key"]
    assert installed.result("train", *TRAIN[:-2], "--mode", "neighbor", "--samples", key)["loss"] == losses


#: Draws the first batch of a loader as a user does, and prints the vertices of the batch and of the ends of its edges.
LOAD = """
import json, sys, gnnloom
batch = next(iter(gnnloom.loader(sys.argv[1], catalog=sys.argv[2], **json.loads(sys.argv[3]))))
print(json.dumps([batch.n_id.tolist(), batch.n_id[batch.edge_index].tolist()]))
"""


def loaded(installed: Installed, environment: dict[str, str], **options: Any) -> tuple[list[int], list[list[int]]]:
    """The vertices of a loader's first batch, and the ends of the edges of the batch."""
    command = [sys.executable, "-c", LOAD, "graph", str(installed.catalog.root), json.dumps(options)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    vertices, ends = json.loads(found.stdout)
    return vertices, ends


@pytest.mark.slow
def test_an_added_neighbor_sampler_feeds_the_loader(installed: Installed, added_packages: dict[str, str]) -> None:
    options = {"fanout": (3,), "batch_size": 60, "neighbor_sampler": "lowest", "split": "all"}
    _, ends = loaded(installed, added_packages, **options)
    matrix = map_whole_graph(installed.catalog["graph"].graph()).matrix
    rows = [matrix.indices[start:stop][:3] for start, stop in pairwise(matrix.indptr)]
    expected = [np.concatenate(rows).tolist(), np.repeat(np.arange(60), [len(row) for row in rows]).tolist()]
    assert sorted(zip(*ends, strict=True)) == sorted(zip(*expected, strict=True))


@pytest.mark.slow
def test_an_added_sampler_of_subgraphs_feeds_the_loader(installed: Installed, added_packages: dict[str, str]) -> None:
    vertices, ends = loaded(installed, added_packages, sampler="stretch", stretch_step=2, batch_size=20)
    first = next(each for each in vertices if (each - 2) % 60 not in vertices)
    assert sorted(vertices) == sorted((first + 2 * np.arange(20)) % 60)
    matrix = map_whole_graph(installed.catalog["graph"].graph()).matrix
    rows = {vertex: matrix.indices[slice(*matrix.indptr[vertex : vertex + 2])] for vertex in vertices}
    expected = [(source, target) for target, row in rows.items() for source in row.tolist() if source in rows]
    assert sorted(zip(*ends, strict=True)) == sorted(expected)


def test_options_of_what_was_added_are_listed_and_refused_elsewhere(installed: Installed) -> None:
    text = " ".join(installed.run("train", "--help-all").stdout.split())
    assert "stretch: consecutive vertices" in text
    assert "--stretch-step INTEGER Distance between vertices (subgraph, again)" in text
    assert "again Every epoch several times" in text
    done = installed.run("train", "graph", "--mode", "subgraph", "--stretch-step", "2")
    assert (done.returncode, done.stderr) == (
        3,
        "error: stretch_step: sampler frontier has no such option, only stretch\n",
    )
