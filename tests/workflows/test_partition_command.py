"""`gnnloom partition`: plans, comparisons and presets, as a user asks for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from gnnloom.storage import Catalog
from gnnloom.workflows.cli.main import cli
from support.graphs import random_adjacency, store_graph


def partition(folder: Path, *arguments: str) -> dict[str, Any]:
    if "web" not in Catalog(folder):
        store_graph(Catalog(folder).create("web"), random_adjacency(300, 900, 0, symmetric=True), symmetric=True)
    command = ["--catalog", str(folder), "partition", "web", *arguments, "--workers", "0", "--json"]
    done = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    content = json.loads(done.output)
    assert isinstance(content, dict)
    return content


def test_a_plan_makes_nothing(tmp_path: Path) -> None:
    plan = partition(tmp_path, "--parts", "4", "--plan")
    assert {"method", "preset", "memory", "disk", "cpu_seconds", "fits"} == set(plan["methods"][0])
    assert Catalog(tmp_path)["web"].artifacts("partition") == []


def test_shares_are_those_of_the_random_partition(tmp_path: Path) -> None:
    found = partition(tmp_path, "--parts", "4", "--method", "multilevel", "--preset", "flat", "--compare", "random")
    random = partition(tmp_path, "--parts", "4", "--method", "random")
    for name in ("volume_avg", "volume_max", "messages_avg", "messages_max"):
        assert found[f"{name}_share"] == found[name] / random[name]
    assert found["volume_avg_share"] < 1


def test_options_reach_the_artifact(tmp_path: Path) -> None:
    partition(tmp_path, "--parts", "3", "--method", "metis", "--weights", "unit")
    (info,) = Catalog(tmp_path)["web"].artifacts("partition")
    assert info.parameters["weights"] == "unit"
    assert info.parameters["model"] == "graph"
