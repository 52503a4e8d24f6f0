"""`gnnloom partition`: projections, comparisons and presets from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gnnloom.storage import Catalog
from gnnloom.storage.errors import PartitionerError
from gnnloom.workflows.cli.main import cli
from support.graphs import random_adjacency, store_graph


def partition(folder: Path, *arguments: str) -> dict[str, Any]:
    if "web" not in Catalog(folder):
        store_graph(Catalog(folder).create("web"), random_adjacency(300, 900, 0, symmetric=True), symmetric=True)
    command = ["--catalog", str(folder), "partition", "web", *arguments, "--workers", "0", "--json"]
    done = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    content = json.loads(done.stdout)
    assert isinstance(content, dict)
    return content


def test_a_projection_partitions_nothing(tmp_path: Path) -> None:
    projected = partition(tmp_path, "--parts", "4", "--plan")
    fields = {"method", "preset", "model", "memory", "disk", "cpu_seconds", "fits", "chosen"}
    assert fields == set(projected["methods"][0])
    assert all(bool(each["chosen"]) == (each["method"] == "auto") for each in projected["methods"])
    assert Catalog(tmp_path)["web"].artifacts("partition") == []


def test_shares_are_relative_to_the_random_partition(tmp_path: Path) -> None:
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


def test_a_comparison_keeps_only_partitions_that_were_asked_for(tmp_path: Path) -> None:
    found = partition(tmp_path, "--parts", "3", "--method", "metis", "--compare", "random")
    (info,) = Catalog(tmp_path)["web"].artifacts("partition")
    assert info.key == found["key"]
    random = partition(tmp_path, "--parts", "3", "--method", "random")
    partition(tmp_path, "--parts", "3", "--method", "metis", "--compare", "random")
    assert {info.key for info in Catalog(tmp_path)["web"].artifacts("partition")} == {found["key"], random["key"]}


def test_a_comparison_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = partition(tmp_path, "--parts", "3", "--method", "block")

    def refuse(*_: Any) -> None:
        raise PartitionerError("it broke")

    monkeypatch.setattr("gnnloom.pipeline.partition.streaming.random_partition", refuse)
    command = ["--catalog", str(tmp_path), "partition", "web", "--parts", "3", "--method", "block"]
    done = CliRunner().invoke(cli, [*command, "--compare", "random", "--workers", "0"])
    assert done.exit_code == 1
    (info,) = Catalog(tmp_path)["web"].artifacts("partition")
    assert info.key == found["key"]


def test_a_comparison_of_a_directed_graph_has_both_directions(tmp_path: Path) -> None:
    store_graph(Catalog(tmp_path).create("web"), random_adjacency(300, 900, 0, symmetric=False), symmetric=False)
    found = partition(tmp_path, "--parts", "4", "--method", "multilevel", "--preset", "flat", "--compare", "random")
    random = partition(tmp_path, "--parts", "4", "--method", "random")
    for name in ("volume_max", "messages_avg", "volume_backward_avg", "messages_backward_max"):
        assert found[f"{name}_share"] == found[name] / random[name]


def test_lists_of_figures_per_part_are_in_the_json_and_not_in_the_table(tmp_path: Path) -> None:
    found = partition(tmp_path, "--parts", "290", "--method", "random")
    for name in ("volume", "receive_volume", "messages", "receive_messages", "load", "vertices"):
        assert len(found[f"{name}_per_part"]) == 290
    assert sum(found["volume_per_part"]) == found["km1"]
    command = ["--catalog", str(tmp_path), "partition", "web", "--parts", "290", "--method", "random"]
    assert "per part" not in CliRunner().invoke(cli, [*command, "--workers", "0"]).output
