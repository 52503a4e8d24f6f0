"""`gnnloom doctor` finds problems and says how to fix them; `gnnloom check` runs a complete training."""

from __future__ import annotations

import json
import re
import subprocess
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gnnloom.storage.errors import CorruptError, LaunchError
from gnnloom.workflows.cli.main import cli
from gnnloom.workflows.doctor import installation, machine, partitioners, software, tiny_example
from gnnloom.workflows.doctor.finding import FAILED, OK, WARNING, Verdict


@pytest.mark.slow
def test_the_doctor_passes_on_this_machine_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["--catalog", str(tmp_path / "catalog"), "doctor", "--json"])
    content = json.loads(done.output)
    assert done.exit_code == 0, content
    found = {check["check"]: check for check in content["checks"]}
    for name in (
        "python",
        "packages",
        "kernels",
        "sparse product",
        "mpi",
        "partitioner mtkahypar",
        "partitioner block",
    ):
        assert found[name]["state"] == OK, found[name]
    assert ", kept in /" in found["kernels"]["found"]
    assert all(check["fix"] for check in content["checks"] if check["state"] != OK)
    assert list(tmp_path.iterdir()) == []


def test_the_doctor_exits_with_1_if_a_check_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = [Verdict("mpi", FAILED, "none", "install [one]"), Verdict("cores", WARNING, "1", "more")]
    monkeypatch.setattr("gnnloom.workflows.cli.doctor.examine", lambda folder: iter(findings))
    done = CliRunner().invoke(cli, ["doctor"])
    assert done.exit_code == 1
    assert "install [one]" in done.output
    as_json = CliRunner().invoke(cli, ["doctor", "--json"])
    assert (as_json.exit_code, json.loads(as_json.output)["ok"]) == (1, False)


def test_missing_broken_and_hanging_mpi_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> str:
        raise LaunchError("no mpiexec")

    with monkeypatch.context() as patch:
        patch.setattr("gnnloom.trainer.comm.transports.mpi.find_mpiexec", absent)
        assert "pip install" in software.check_mpi().fix
    with monkeypatch.context() as patch:
        patch.setattr("gnnloom.trainer.comm.transports.mpi.find_mpiexec", lambda: "/bin/false")
        assert software.check_mpi().state == FAILED

    def hang(*arguments: Any, **options: Any) -> None:
        raise subprocess.TimeoutExpired("mpiexec", 60)

    monkeypatch.setattr(subprocess, "run", hang)
    assert "did not finish" in software.check_mpi().found


@pytest.mark.slow
def test_missing_packages_and_partitioners_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    for module in (software, partitioners):
        monkeypatch.setattr(module, "version", absent)
    assert software.check_packages().state == FAILED
    found = {finding.check: finding for finding in partitioners.check_partitioners()}
    assert found["partitioner mtkahypar"].state == FAILED
    assert (found["partitioner metis"].state, found["partitioner random"].state) == (WARNING, OK)
    assert "pip install pymetis" in found["partitioner metis"].fix


def test_the_kernel_of_sparse_products_is_named_with_its_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = software.check_sparse_product()
    assert (found.state, found.found.split()[0]) == (OK, "C")
    assert re.search(r", [\d.]+ billion additions per second on one thread$", found.found)
    monkeypatch.setattr("gnnloom.trainer.kernels.c.library._found_library", lambda: None)
    missing = software.check_sparse_product()
    assert missing.state == FAILED
    assert "install a C compiler" in missing.fix


def test_a_wrong_sparse_product_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnloom.trainer.kernels.c.library.Library.multiply", lambda *arguments: None)
    found = software.check_sparse_product()
    assert (found.state, found.fix) == (FAILED, "install gnnloom again")


def test_a_read_only_disk_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.access", lambda *arguments: False)
    assert "--catalog" in machine.check_disk_speed(tmp_path / "catalog").fix


def test_a_catalog_below_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("0 1")
    found = machine.check_catalog(tmp_path / "edges.txt" / "x" / "y")
    assert (found.state, "--catalog" in found.fix) == (FAILED, True)
    assert f"{tmp_path / 'edges.txt'} is a file" in found.found
    assert machine.check_catalog(tmp_path / "x").state == machine.check_catalog(tmp_path).state == OK


def test_a_check_that_raises_is_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken() -> Verdict:
        raise ZeroDivisionError("x")

    monkeypatch.setattr(installation, "check_python", broken)
    assert next(installation.examine(tmp_path)).state == FAILED


@pytest.mark.slow
def test_the_check_runs_all_steps_and_cleans_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = CliRunner().invoke(cli, ["check", "--json"])
    assert done.exit_code == 0, done.exception
    steps = [step["step"] for step in json.loads(done.output)["steps"]]
    assert steps[0] == "generate"
    assert steps[-2:] == ["compare", "verify"]
    assert list(tmp_path.glob("gnnloom-check-*")) == []


def test_losses_that_differ_are_an_error() -> None:
    with pytest.raises(CorruptError, match="differ by 1"):
        tiny_example._compare([1.0, 0.5], [1.0, 0.5 + 1e-6])
    with pytest.raises(CorruptError, match="differ by nan"):
        tiny_example._compare([1.0], [float("nan")])
