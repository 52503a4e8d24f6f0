"""Partitioners as descriptors: everything that users see is derived from them, and one file adds one."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gnnloom.pipeline.partition import options as options_module
from gnnloom.pipeline.partition.options import METHODS, PartitionOptions
from gnnloom.pipeline.partition.partitioner import PartitionProblem
from gnnloom.pipeline.partition.stage import partition_graph
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError, PartitionerError
from support.graphs import random_adjacency, store_graph
from support.partitions import rows_sent
from support.plugins import InstalledProgram, install_plugin

TOY = """
import numpy as np

from gnnloom.pipeline.partition.partitioner import Partitioner
from gnnloom.pipeline.partition.partitioner import Preset
from gnnloom.storage.option import Option


def fill(problem, part):
    from gnnloom.pipeline.partition.options import own_options

    hand = {"single": 1, "pairs": 2}[problem.options.preset]
    part[:] = (np.arange(len(part)) // hand + own_options(problem.options)["first"]) % problem.options.parts
    return {"hand": hand, "first": int(part[0])}


PARTITIONER = Partitioner(
    "toy",
    order=70,
    help="Deals the vertices like cards.",
    fill=fill,
    presets=(Preset("single", "one card at a time"), Preset("pairs", "two cards at a time")),
    options={"first": Option(default=0, help="Part of vertex 0.", least=0, most=2)},
)
"""
LIGHT = """
import sys
from gnnloom.pipeline.partition.options import PartitionOptions
room = "gnnloom.pipeline.partition"
heavy = ("mtkahypar", "kahypar", "pymetis", f"{room}.multilevel.ways", f"{room}.stochastic", f"{room}.native.run")
print([name for name in heavy if name in sys.modules])
"""


def test_one_file_adds_a_partitioner_to_every_command(
    catalog: Catalog, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    adjacency = random_adjacency(40, 120, 0, symmetric=True)
    store_graph(catalog.create("x"), adjacency, symmetric=True)
    program = InstalledProgram(install_plugin(tmp_path / "plugins", "toy", TOY, "gnnloom.partitioners", "PARTITIONER"))
    request.addfinalizer(program.close)

    def gnnloom(*arguments: str) -> str:
        done = program.run("--catalog", str(catalog.root), *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    for hand, preset in ((1, []), (2, ["--preset", "pairs"])):
        command = ["partition", "x", "--parts", "3", "--method", "toy", *preset, "--workers", "0", "--json"]
        found = json.loads(gnnloom(*command))
        part = np.arange(40) // hand % 3
        assert found["km1"] == rows_sent(adjacency.toarray(), part, 3).sum()
        assert (found["method"], found["hand"]) == ("toy", hand)
    key = next(info.key for info in catalog["x"].artifacts("partition") if info.parameters["preset"] == "single")
    shard = ["shard", "x", "--parts", "3", "--method", "toy", "--partition", key, "--workers", "0", "--json"]
    assert json.loads(gnnloom(*shard))["parts"] == 3
    command = ["partition", "x", "--parts", "3", "--method", "toy", "--method-options", "first=2", "--workers", "0"]
    found = json.loads(gnnloom(*command, "--json"))
    assert found["first"] == 2
    own = [info.parameters.get("method_options") for info in catalog["x"].artifacts("partition")]
    assert sorted(own, key=str) == [None, None, {"first": 2}]
    text = gnnloom("partition", "--help-all")
    for words in (
        "--method-options first=0: Part of vertex 0.",
        *("toy          Deals the vertices like cards.", "single ", "one card at a time", "pairs "),
    ):
        assert words in text
    projected = json.loads(gnnloom("partition", "x", "--parts", "3", "--plan", "--json"))["methods"]
    assert [each["preset"] for each in projected if each["method"] == "toy"] == ["single", "pairs"]


def test_options_that_a_partitioner_does_not_have_are_refused() -> None:
    with pytest.raises(InputError, match=r"method_options 'first=2': expected none: method block has no options"):
        PartitionOptions(3, "block", method_options=("first=2",))


def test_listing_the_partitioners_loads_no_implementation() -> None:
    command = [sys.executable, "-c", LIGHT]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.parametrize("wrong", [-1, 3])
def test_parts_out_of_range_are_refused_before_they_are_counted(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, wrong: int
) -> None:
    def fill(problem: PartitionProblem, part: NDArray[np.int32]) -> dict[str, Any]:
        part[problem.options.parts] = wrong
        return {}

    broken = MappingProxyType({"block": replace(METHODS["block"], fill=fill)})
    monkeypatch.setattr(options_module, "METHODS", broken)
    dataset = catalog.create("g")
    graph = store_graph(dataset, random_adjacency(9, 20, 0, symmetric=True), symmetric=True)
    with pytest.raises(PartitionerError, match=rf"method block: parts from .*{wrong}.*, expected 0\.\.2"):
        partition_graph(dataset, graph, PartitionOptions(3, "block"), InProcessCluster())


def test_every_partitioner_describes_itself() -> None:
    for name, method in METHODS.items():
        assert name == method.name
        assert method.help.endswith(".")
        assert method.models
        assert len(set(method.preset_names)) == len(method.presets)
        assert bool(method.package) == bool(method.install) == bool(method.child_module)
        assert all(preset.help for preset in method.presets if preset.name)
