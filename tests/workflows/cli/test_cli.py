"""Every command has help with an example, prints one JSON object with --json, and exits with the documented code."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from click.testing import CliRunner

from gnnloom.storage import Catalog
from gnnloom.workflows.cli.main import cli
from support.in_process import run_command

STAGES = ["ingest", "generate", "features", "partition", "shard", "train", "predict"]
COMMANDS = [*STAGES, "sample", "export", "report", "run", "demo", "doctor", "check"]
CATALOG_COMMANDS = ["ls", "show", "tree", "lineage", "du", "verify", "gc", "export", "import", "part", "rm"]
EDGES = "# a comment\n0\t1\n1\t2\n2\t0\n2\t3\n3\t3\n0\t1\n"


def gnnloom(catalog: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command("--catalog", str(catalog), *arguments)


def succeed(catalog: Path, *arguments: str) -> dict[str, Any]:
    done = gnnloom(catalog, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert isinstance(content, dict)
    return content


def fail(catalog: Path, *arguments: str) -> tuple[int, str]:
    done = gnnloom(catalog, *arguments)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def store_web(root: Path) -> Path:
    """Ingest a tiny graph; returns its source."""
    source = root.parent / "edges.txt"
    source.write_text(EDGES)
    succeed(root, "ingest", "web", str(source), "--workers", "0")
    return source


@pytest.mark.parametrize("command", [[name] for name in COMMANDS] + [["catalog", name] for name in CATALOG_COMMANDS])
def test_every_command_has_help_with_an_example(command: list[str]) -> None:
    done = CliRunner().invoke(cli, [*command, "--help"])
    assert done.exit_code == 0
    assert "Example:" in done.output
    assert f"gnnloom {' '.join(command)}" in done.output
    assert "--json" in done.output or command == ["demo"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, Any]]]:
    """A small generated dataset with a trained run, and the JSON output of each command that made it."""
    root = tmp_path_factory.mktemp("cli") / "catalog"
    out = root.parent / "predictions.npy"
    results = {
        "generate": succeed(
            root, "generate", "tiny", "sbm", "--vertices", "400", "--edges", "6000", "--classes", "4", "--workers", "0"
        ),
        "partition": succeed(root, "partition", "tiny", "--parts", "2", "--workers", "0"),
        "shard": succeed(root, "shard", "tiny", "--parts", "2", "--workers", "0"),
        "train": succeed(root, "train", "tiny", "--ranks", "2", "--hidden", "8", "--epochs", "30", "--run", "first"),
        "predict": succeed(root, "predict", "tiny", "--run", "first", "--out", str(out)),
    }
    return root, results


@pytest.mark.slow
def test_ingest_reports_what_it_found(trained: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    result = trained[1]["generate"]
    fields = ("vertices", "edges_in", "nnz", "self_loops", "duplicates", "seconds", "peak_memory", "bytes_written")
    assert all(field in result for field in fields)
    assert (result["vertices"], result["edges_in"], result["classes"]) == (400, 6000, 4)
    graph = Catalog(trained[0])["tiny"].graph()
    assert result["nnz"] == graph.to_scipy().nnz


def test_partition_reports_its_quality(trained: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    result = trained[1]["partition"]
    fields = ("km1", "imbalance", "volume_avg", "volume_max", "messages_avg", "messages_max", "seconds")
    assert all(isinstance(result[field], int | float) for field in fields)
    assert (result["parts"], result["method"], result["quality"]) == (2, "auto", "balanced")
    assert result["reason"]


def test_training_reports_its_curve_and_costs(trained: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    root, results = trained
    result = results["train"]
    assert (result["run"], result["algorithm"], result["ranks"]) == ("first", "p2p", 2)
    assert len(result["loss"]) == 30
    assert result["loss"][-1] < result["loss"][0]
    for field in ("train_accuracy", "val_accuracy", "test_accuracy"):
        assert 0 <= result[field] <= 1
    assert len(result["bytes_read"]) == len(result["peak_memory"]) == 2
    assert {"grid", "epoch_seconds", "bytes_sent", "messages_sent"} <= result.keys()
    lines = (root / "tiny" / "runs" / "first" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["loss"] for line in lines] == result["loss"]


def test_predictions_are_in_vertex_order(trained: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    root, results = trained
    vertices = Catalog(root)["tiny"].vertices()
    predicted = np.load(results["predict"]["out"], allow_pickle=False)
    test = vertices.split() == 3
    accuracy = float((predicted == vertices.label())[test].mean())
    assert accuracy == pytest.approx(results["train"]["test_accuracy"])
    assert accuracy > 0.6  # four classes


def _lasting(result: dict[str, Any]) -> dict[str, Any]:
    """The result without the time of the command, which is another one in every call."""
    return {name: value for name, value in result.items() if name != "command_seconds"}


def test_a_repeated_command_finds_the_existing_result(trained: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    root, results = trained
    again = succeed(
        root, "generate", "tiny", "sbm", "--vertices", "400", "--edges", "6000", "--classes", "4", "--workers", "0"
    )
    assert _lasting(again) == _lasting(results["generate"])
    partition = succeed(root, "partition", "tiny", "--parts", "2", "--workers", "0")
    assert _lasting(partition) == _lasting(results["partition"])
    assert succeed(root, "shard", "tiny", "--parts", "2", "--workers", "0")["digest"] == results["shard"]["digest"]


def test_the_catalog_lists_shows_and_verifies_a_dataset(trained: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    root, results = trained
    (row,) = succeed(root, "catalog", "ls")["datasets"]
    assert (row["name"], row["vertices"], len(row["changed"])) == ("tiny", 400, len("2026-01-31 12:00"))
    shown = succeed(root, "catalog", "show", "tiny")
    assert {(item["kind"], item["state"]) for item in shown["artifacts"]} == {
        (kind, "complete") for kind in ("graph", "vertices", "partition", "shards")
    }
    assert all(item["key"] and "parameters" in item for item in shown["artifacts"])
    (run,) = shown["runs"]
    assert (run["run"], run["state"], run["epochs"], run["problem"]) == ("first", "finished", run["of"], None)
    assert run["scores"]["test_accuracy"] == results["train"]["test_accuracy"]
    assert run["predictions"] == str(root / "tiny" / "runs" / "first" / "predictions")
    assert all(item["problem"] is None for item in succeed(root, "catalog", "verify", "tiny")["artifacts"])
    for arguments in (("ls",), ("show", "tiny"), ("verify", "tiny")):
        assert gnnloom(root, "catalog", *arguments).stdout


def test_compact_ids_close_gaps_and_keep_the_original_ids(tmp_path: Path) -> None:
    source = tmp_path / "edges.txt"
    source.write_text("10 20\n20 4000000000\n10 4000000000\n")
    root = tmp_path / "catalog"
    result = succeed(root, "ingest", "web", str(source), "--ids", "compact", "--undirected", "--workers", "0")
    assert (result["vertices"], result["nnz"], result["edges_in"]) == (3, 9, 3)
    np.testing.assert_array_equal(Catalog(root)["web"].graph().original_id(), [10, 20, 4_000_000_000])


def test_wrong_usage_exits_with_2(tmp_path: Path) -> None:
    for arguments in (["nonsense"], ["ingest"], ["partition", "web", "--parts", "0"], ["train", "web", "--lr", "fast"]):
        assert fail(tmp_path / "catalog", *arguments)[0] == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "message"),
    [
        (signal.SIGINT, 130, "interrupted"),
        pytest.param(signal.SIGTERM, 143, "ended by SIGTERM", marks=pytest.mark.long),
    ],
)
def test_a_signal_exits_with_its_code_and_the_same_command_continues(
    tmp_path: Path, number: signal.Signals, code: int, message: str
) -> None:
    root = tmp_path / "catalog"
    arguments = ("generate", "big", "rmat", "--scale", "8", "--workers", "0")
    # It stops where the last task begins, after those of the calibration, and is asked to end there.
    program = [sys.executable, "-m", "gnnloom", "--catalog", str(root), *arguments]
    environment = {**os.environ, "GNNLOOM_FAULT": "task.begin.graph:SIGSTOP:nth=5"}
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True, env=environment) as process:
        while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
            assert process.poll() is None
            time.sleep(0.01)
        assert list(root.glob("big/graph/*/.work/records/*.json"))
        for each in (number, signal.SIGCONT):
            process.send_signal(each)
        log = process.communicate(timeout=60)[1]
    assert process.returncode == code
    assert message in log
    assert "Traceback" not in log
    assert succeed(root, *arguments)["vertices"] == 1 << 8


def test_invalid_input_exits_with_3_and_one_line(tmp_path: Path) -> None:
    root = tmp_path / "catalog"
    source = store_web(root)
    (tmp_path / "bad.txt").write_text("0 1\n1 x\n")
    cases = {
        ("ingest", "bad", str(tmp_path / "bad.txt"), "--workers", "0"): "bad.txt",
        ("ingest", "bad", str(tmp_path / "absent.txt"), "--workers", "0"): "no such file",
        ("ingest", "../bad", str(source), "--workers", "0"): "name",
        ("ingest", "web", str(source), "--undirected", "--workers", "0"): "has a graph already",
        ("partition", "web", "--parts", "5", "--workers", "0"): "4 vertices",
        ("partition", "absent", "--parts", "2", "--workers", "0"): "no such dataset",
        ("shard", "web", "--parts", "2", "--workers", "0"): "gnnloom partition web --parts 2",
        ("train", "web", "--ranks", "2"): "gnnloom partition web --parts 2",
        ("train", "web", "--ranks", "2", "--algorithm", "summa"): "gnnloom shard web --grid 16x16 --permutation double",
        ("predict", "web", "--run", "absent"): "no run absent",
        ("catalog", "show", "absent"): "no such dataset",
        ("catalog", "rm", "web", "--artifact", "graph"): "KIND/KEY",
    }
    for arguments, message in cases.items():
        code, log = fail(root, *arguments)
        assert code == 3, log
        # How a file is read is said before its first error.
        assert log.splitlines()[-1].startswith("error: ")
        assert message in log
    assert "bad" not in Catalog(root) or not Catalog(root)["bad"].artifacts("graph")


def test_a_file_that_has_changed_is_named_as_such_with_a_command_that_makes_room(tmp_path: Path) -> None:
    root = tmp_path / "catalog"
    source = store_web(root)
    source.write_text(source.read_text() + "0 2\n")
    code, log = fail(root, "ingest", "web", str(source), "--workers", "0")
    assert code == 3
    assert "have changed since" in log
    remedy = re.search(r"`gnnloom (catalog rm web --artifact graph/\w+)`", log)
    assert remedy is not None
    succeed(root, *remedy[1].split(), "--force")
    succeed(root, "ingest", "web", str(source), "--workers", "0")


def test_an_error_about_missing_shards_lists_the_existing_ones(trained: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    code, log = fail(trained[0], "train", "tiny", "--ranks", "3")
    assert code == 3
    assert "parts=2" in log


def test_an_incomplete_artifact_exits_with_4(tmp_path: Path) -> None:
    root = tmp_path / "catalog"
    source = store_web(root)
    graph = Catalog(root)["web"].graph()
    (graph.artifact.path / "manifest.json").unlink()
    assert fail(root, "catalog", "verify", "web")[0] == 4
    succeed(root, "ingest", "web", str(source), "--workers", "0")
    assert succeed(root, "catalog", "verify", "web")["artifacts"][0]["problem"] is None


def test_verify_finds_damage_and_exits_with_3(tmp_path: Path) -> None:
    root = tmp_path / "catalog"
    store_web(root)
    chunk = next((Catalog(root)["web"].graph().artifact.path / "block" / "00000" / "indices" / "c").iterdir())
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"\x00")
    code, log = fail(root, "catalog", "verify", "web")
    assert code == 3
    assert "damaged" in log


def test_rm_removes_one_artifact_or_a_whole_dataset(tmp_path: Path) -> None:
    root = tmp_path / "catalog"
    store_web(root)
    key = Catalog(root)["web"].graph().artifact.key
    succeed(root, "catalog", "rm", "web", "--artifact", f"graph/{key}")
    assert Catalog(root)["web"].artifacts() == []
    succeed(root, "catalog", "rm", "web", "--yes")
    assert list(Catalog(root)) == []
