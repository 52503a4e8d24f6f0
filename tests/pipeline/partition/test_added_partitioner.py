"""Another package adds a partitioner in one file, and every command knows it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gnnloom.storage import Catalog
from support.graphs import random_adjacency, store_graph
from support.partitions import rows_sent
from support.plugins import InstalledProgram


def test_one_file_adds_a_partitioner_to_every_command(
    catalog: Catalog, added_packages: dict[str, str], request: pytest.FixtureRequest
) -> None:
    adjacency = random_adjacency(40, 120, 0, symmetric=True)
    store_graph(catalog.create("x"), adjacency, symmetric=True)
    program = InstalledProgram(added_packages)
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
