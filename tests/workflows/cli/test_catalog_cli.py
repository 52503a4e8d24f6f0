"""Catalog commands print what the library finds, as a table and as JSON, and exit with the documented code."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from gnnloom.pipeline.links.options import DrawOptions
from gnnloom.pipeline.links.stage import draw_links
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.stage import partition_graph
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, GnnloomError
from gnnloom.storage.errors import FormatError
from gnnloom.storage.format.artifact import Artifact
from gnnloom.workflows.cli.main import cli
from support.graphs import random_adjacency, store_graph
from support.in_process import run_command
from support.recipes import forked_program
from support.small_catalogs import begin_partition, store_small_dataset


def succeed(catalog: Catalog, *arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(cli, ["--catalog", str(catalog.root), "catalog", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    content = json.loads(done.stdout)
    assert isinstance(content, dict)
    return content


def shown(catalog: Catalog, *arguments: str) -> str:
    done = CliRunner().invoke(cli, ["--catalog", str(catalog.root), "catalog", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def refused(catalog: Catalog, *arguments: str) -> GnnloomError:
    done = CliRunner().invoke(cli, ["--catalog", str(catalog.root), "catalog", *arguments])
    assert isinstance(done.exception, GnnloomError), done.output
    return done.exception


@pytest.mark.slow
def test_show_distinguishes_shards_of_different_grids(catalog: Catalog) -> None:
    store_small_dataset(catalog)
    for grid in ("2x2", "3x1"):
        command = ["--catalog", str(catalog.root), "shard", "web", "--grid", grid, "--workers", "0"]
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 0, done.output
    listed = shown(catalog, "show", "web")
    assert "grid=2x2" in listed
    assert "grid=3x1" in listed


@pytest.mark.slow
def test_show_tells_artifacts_with_equal_parameters_by_what_they_are_made_from(catalog: Catalog) -> None:
    dataset = catalog.create("web")
    adjacency = random_adjacency(60, 300, 1, symmetric=True)
    graph = store_graph(dataset, adjacency, symmetric=True)
    links = draw_links(dataset, graph, DrawOptions(valid=0.1, test=0.1), InProcessCluster())
    for each in (graph, dataset.graph(links.message_graph)):
        partition_graph(dataset, each, PartitionOptions(2, method="block"), InProcessCluster())
    text = " ".join(shown(catalog, "show", "web").replace("│", " ").split())
    assert f"links={links.artifact.key}" in text
    assert all(f"graph={key}" in text for key in (graph.artifact.key, links.message_graph))


def test_tree_lineage_and_du_show_the_dataset(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    key = dataset.partition(2).artifact.key
    tree = succeed(catalog, "tree", "web")["datasets"]["web"]
    (partition,) = (row for row in tree if row["kind"] == "partition")
    assert partition["arrays"] == {"part": {"shape": [30], "dtype": "int32", "dims": ["vertex"]}}
    assert "int32" in shown(catalog, "tree")
    nodes = {node["name"]: node for node in succeed(catalog, "lineage", "web")["nodes"]}
    assert "runs/first" in nodes[f"shards/{dataset.find('shards').key}"]["outputs"]
    assert f"partition/{key}" in shown(catalog, "lineage", "web")
    usage = succeed(catalog, "du")
    assert usage["bytes"] == dataset.stored_bytes()
    assert "total" in shown(catalog, "du", "web")


def test_verify_reads_the_invariants_and_the_runs(catalog: Catalog) -> None:
    dataset = catalog.create("web")
    store_graph(dataset, random_adjacency(30, 60, 0, symmetric=False), symmetric=True, num_blocks=1)
    assert "differs from its transpose" not in shown(catalog, "verify", "web", "--quick")
    assert "damaged artifacts or runs: 1 of 1" in str(refused(catalog, "verify", "web"))


def test_verify_finds_a_damaged_checkpoint(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    dataset.remove_artifact("shards", dataset.find("shards").key, force=True)
    result = succeed(catalog, "verify", "web")
    assert result["runs"] == [{"run": "first", "state": "complete", "epochs": 3, "problem": None}]
    chunk = next(path for path in (dataset.run_path("first") / "checkpoint").rglob("c/0/0"))
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"#")
    assert "damaged" in str(refused(catalog, "verify", "web"))


def test_gc_removes_exactly_what_a_dry_run_lists(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    writer = begin_partition(dataset)
    listed = succeed(catalog, "gc", "--dry-run")
    assert writer.path.exists()
    assert str(writer.path) in {row["path"] for row in listed["items"]}
    assert "begun and not finished" in shown(catalog, "gc", "web", "--dry-run")
    removed = succeed(catalog, "gc", "web")
    assert removed["items"] == listed["items"]
    assert removed["bytes"] > 1000
    assert not writer.path.exists()
    assert "0 items" in shown(catalog, "gc")


def test_export_and_import_move_a_dataset(catalog: Catalog, tmp_path: Path) -> None:
    store_small_dataset(catalog)
    file = tmp_path / "web.tar.zst"
    assert succeed(catalog, "export", "web", str(file))["archive_bytes"] == file.stat().st_size
    assert "the file exists already" in str(refused(catalog, "export", "web", str(file)))
    result = succeed(catalog, "import", str(file), "--as", "copy")
    assert (result["dataset"], result["artifacts"], result["runs"]) == ("copy", 5, 1)
    assert catalog["copy"].graph().artifact.digest == catalog["web"].graph().artifact.digest
    assert "of this name exists already" in str(refused(catalog, "import", str(file)))


def test_partitions_are_written_and_read_as_metis_files(catalog: Catalog, tmp_path: Path) -> None:
    dataset = store_small_dataset(catalog)
    file = tmp_path / "web.part.2"
    succeed(catalog, "part", "web", "--parts", "2", "--out", str(file))
    given = 1 - np.loadtxt(file, dtype=np.int32)
    other = tmp_path / "other.part.2"
    other.write_text("".join(f"{part}\n" for part in given))
    result = succeed(catalog, "part", "web", "--read", str(other))
    partition = dataset.partition(key=result["key"])
    np.testing.assert_array_equal(partition.part(), given)
    # Swapping the two parts does not change what is exchanged; count that from the matrix.
    matrix = dataset.graph().to_scipy().toarray()
    sent = sum(len({given[row] for row in np.flatnonzero(matrix[:, v])} - {given[v]}) for v in range(30))
    assert partition.quality["km1"] == sent
    assert succeed(catalog, "part", "web", "--read", str(other))["key"] == result["key"]
    other.write_text("0\n" * 29)
    assert "29 lines" in str(refused(catalog, "part", "web", "--read", str(other)))
    wrong = CliRunner().invoke(cli, ["--catalog", str(catalog.root), "catalog", "part", "web"])
    assert wrong.exit_code == 2


def test_a_bad_manifest_or_a_foreign_group_does_not_stop_any_command(catalog: Catalog, tmp_path: Path) -> None:
    dataset = store_small_dataset(catalog)
    store_small_dataset(catalog, "other")
    graph = dataset.graph().artifact
    (graph.path / "manifest.json").write_text("{")
    zarr.open_group(str(catalog.root / "foreign"), mode="w")
    rows = {row["name"]: row for row in succeed(catalog, "ls")["datasets"]}
    assert "not a gnnloom dataset" in rows["foreign"]["problem"]
    assert str(graph.path) in rows["web"]["problem"]
    assert (rows["web"]["vertices"], rows["web"]["artifacts"], rows["other"]["vertices"]) == (None, 5, 30)
    for command in ("show", "tree"):
        content = succeed(catalog, command, "web")
        artifacts = content["artifacts"] if command == "show" else content["datasets"]["web"]
        problems = [row["key"] for row in artifacts if row["problem"]]
        assert problems == [graph.key]
        # Tables and trees wrap long lines anywhere.
        assert "notvalidJSON" in re.sub(r"[^A-Za-z]", "", shown(catalog, command, "web"))
    assert set(succeed(catalog, "tree")["datasets"]) == {"web", "other"}
    assert {row["dataset"] for row in succeed(catalog, "du")["items"]} == {"web", "other"}
    assert {node["name"] for node in succeed(catalog, "lineage", "web")["nodes"]} >= {f"graph/{graph.key}"}
    assert not [row for row in succeed(catalog, "gc", "--dry-run")["items"] if "lock" not in row["reason"]]
    assert "foreign: a Zarr group, but not a gnnloom dataset" in shown(catalog, "gc", "--dry-run")
    assert "damaged artifacts or runs: " in str(refused(catalog, "verify", "web"))
    assert "damaged artifacts or runs: " in str(refused(catalog, "export", "web", str(tmp_path / "web.tar")))


def test_an_artifact_that_others_need_is_removed_only_by_force(catalog: Catalog) -> None:
    graph = store_small_dataset(catalog).graph().artifact
    assert "needed by transpose/" in str(refused(catalog, "rm", "web", "--artifact", f"graph/{graph.key}"))
    succeed(catalog, "rm", "web", "--artifact", f"graph/{graph.key}", "--force")
    assert not graph.path.exists()


def test_a_run_is_removed_by_the_name_that_other_commands_know_it_by(catalog: Catalog) -> None:
    dataset = store_small_dataset(catalog)
    both = ["catalog", "rm", "web/first", "--artifact", "runs/other"]
    done = CliRunner().invoke(cli, ["--catalog", str(catalog.root), *both])
    assert (done.exit_code, "name different things" in done.output) == (2, True)
    assert "runs/absent" in str(refused(catalog, "rm", "web/absent"))
    succeed(catalog, "rm", "web/first")
    assert (dataset.runs(), dataset.graph().artifact.path.exists()) == ([], True)


@pytest.mark.parametrize(
    ("catalog_below", "arguments", "code"),
    [
        ("file/x", ["catalog", "import", "web.tar"], 3),
        ("x" * 300, ["ingest", "web", "web.tar"], 3),
        ("catalog", ["export", "web", "labels", "--out", "/proc/o.csv"], 3),
        ("catalog", ["report", "web", "--out", "/proc/x"], 3),
    ],
)
def test_an_unusable_path_is_reported_in_one_line(
    catalog: Catalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    catalog_below: str,
    arguments: list[str],
    code: int,
) -> None:
    dataset = store_small_dataset(catalog)
    (dataset.run_path("first") / "metrics.jsonl").write_text('{"epoch": 0, "loss": 1.0, "seconds": 1.0}\n')
    for name in ("file", "web.tar"):
        (tmp_path / name).write_text("0 1\n")
    monkeypatch.chdir(tmp_path)
    done = run_command("--catalog", str(tmp_path / catalog_below), *arguments)
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (code, 1, ""), done.stderr
    assert done.stderr.startswith("error: ")


@pytest.mark.slow
def test_two_simultaneous_ingests_of_one_graph_leave_one_intact_artifact(tmp_path: Path) -> None:
    root, source = tmp_path / "catalog", tmp_path / "edges.txt"
    source.write_text("".join(f"{v} {(v * 7 + 1) % 50}\n" for v in range(50)))
    program = [*forked_program(), "--catalog", str(root)]
    command = [*program, "ingest", "web", str(source), "--undirected", "--workers", "0", "--json"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    first, second = (json.loads(output) for output, _ in outputs)
    assert (first["nnz"], first.get("digest")) == (second["nnz"], second.get("digest"))
    (info,) = Catalog(root)["web"].artifacts("graph")
    assert Artifact(info.path).verify() > 0


@pytest.mark.parametrize(
    "command", ["catalog verify web", "catalog rm web --yes", "generate web rmat --scale 5", "train web"]
)
def test_commands_refuse_a_dataset_of_a_development_version_in_one_line(tmp_path: Path, command: str) -> None:
    with tarfile.open(Path(__file__).parents[2] / "data" / "store-development.tar.gz") as tar:
        tar.extractall(tmp_path, filter="data")
    done = run_command("--catalog", str(tmp_path), *command.split())
    (line,) = done.stderr.splitlines()
    assert "made by a development version of gnnloom" in line
    assert "make it again" in line
    assert (done.returncode, done.stdout) == (FormatError.exit_code, "")
