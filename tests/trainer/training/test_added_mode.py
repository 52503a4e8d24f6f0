"""Another package adds a sampler and a mode of training, each in one file, and the command line knows them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.sources.generators.sbm import StochasticBlockModel
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from support.plugins import InstalledProgram, install_plugin

SAMPLER = '''
"""Consecutive vertices, from a random one on."""

from gnnloom.storage.option import Option
from gnnloom.storage.samplers.kind import SamplerKind

SAMPLER = SamplerKind(
    name="stretch",
    help="consecutive vertices",
    source="nobody",
    covers_epoch=False,
    place=("stretch_class", "StretchSampler"),
    options={"stretch_step": Option(default=1, help="Distance between vertices", least=1)},
    arguments={"stretch_step": "step"},
)
'''
SAMPLER_CLASS = """
import numpy as np

from gnnloom.storage.sampling.sampler import SubgraphSampler


class StretchSampler(SubgraphSampler):
    kind = "stretch"

    def __init__(self, graph, seed, size, step=1):
        super().__init__(graph, seed, size)
        self.step = step

    def draw(self, epoch, batch):
        first = int(self._key(epoch, batch) % np.uint64(self.graph.num_vertices))
        return np.unique((first + self.step * np.arange(self.size)) % self.graph.num_vertices)
"""
MODE = '''
"""Subgraphs, on each of which a step is taken several times."""

from dataclasses import replace

from gnnloom.storage.option import Option
from gnnloom.trainer.modes.subgraph import MODE as SUBGRAPH

MODE = replace(
    SUBGRAPH,
    name="again",
    order=10,
    help="Every epoch several times",
    place=("again_class", "AgainMode"),
    options={**SUBGRAPH.options, "again_rounds": Option(default=1, help="Times that an epoch is repeated", least=1)},
)
'''
MODE_CLASS = """
from gnnloom.trainer.modes.epochs.subgraph import SubgraphMode


class AgainMode(SubgraphMode):
    def _numbers(self):
        for number in super()._numbers():
            yield from [number] * self.context.options["again_rounds"]

    def train_epoch(self, epoch, update):
        rounds = self.context.options["again_rounds"]
        return sum(super(AgainMode, self).train_epoch(epoch, update) for _ in range(rounds)) / rounds
"""
TRAIN = ("--hidden", "4", "--epochs", "3", "--batch-size", "20", "--sampler-threads", "0", "--batches", "1")


class Installed:
    """A catalog to sample from, and an environment in which the sampler and the mode are installed."""

    def __init__(self, folder: Path) -> None:
        self.catalog = Catalog(folder / "catalog")
        model = StochasticBlockModel(num_vertices=60, num_edges=240, num_blocks=3, num_features=5, seed=2)
        dataset, cluster = self.catalog.create("graph"), InProcessCluster()
        graph = ingest_graph(dataset, model.edges(), IngestOptions(undirected=True), cluster)
        ingest_vertices(dataset, model.vertices(), cluster)
        shard_rows(dataset, partition_graph(dataset, graph, PartitionOptions(1, "block"), cluster), cluster)
        site = folder / "site"
        install_plugin(site, "stretch", SAMPLER, "gnnloom.samplers", "SAMPLER")
        environment = install_plugin(site, "again", MODE, "gnnloom.modes", "MODE")
        (site / "stretch_class.py").write_text(SAMPLER_CLASS)
        (site / "again_class.py").write_text(MODE_CLASS)
        self.program = InstalledProgram(environment, alone=True)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.program.run("--catalog", str(self.catalog.root), *arguments)

    def train(self, *arguments: str) -> dict[str, Any]:
        done = self.run("train", "graph", *TRAIN, "--json", *arguments)
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    installed = Installed(tmp_path_factory.mktemp("added"))
    yield installed
    installed.program.close()


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
