"""`gnnloom.simulate`, `calibrate`, `doctor` and `check` return what their commands print."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import gnnloom
from gnnloom.storage import Catalog
from gnnloom.storage.errors import GnnloomError, InputError
from gnnloom.trainer.job.leftovers import Leftover
from gnnloom.trainer.planner.profile import open_profile
from gnnloom.workflows.cli.main import cli
from gnnloom.workflows.doctor.finding import FAILED, OK, Verdict
from support.problems import problem

SIZES: dict[str, Any] = {"vertices": 111_059_956, "edges": 3_228_124_712}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("machine") / "catalog"
    problem("web", 300, 1500, symmetric=True).store_grid(Catalog(folder), "double", grid=(2, 2))
    return folder


def printed(folder: Path, *arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(cli, ["--catalog", str(folder), *arguments, "--json"], catch_exceptions=False)
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def test_a_simulation_has_the_figures_of_the_command(folder: Path, tmp_path: Path) -> None:
    found = gnnloom.simulate(
        **SIZES, ranks=[4, 64], profile="summit", hidden=(64,), csv=tmp_path / "all.csv", catalog=folder
    )
    sizes = [f"--{name}={value}" for name, value in SIZES.items()]
    shown = printed(folder, "simulate", *sizes, "--ranks", "4,64", "--profile", "summit", "--hidden", "64")
    assert found.to_json() == shown
    assert [plan.cost.total for plan in found.plans] == [plan["epoch_seconds"] for plan in shown["plans"]]
    frame = found.frame()
    assert frame["epoch_seconds"].tolist() == [plan["epoch_seconds"] for plan in shown["plans"]]
    with (tmp_path / "all.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["epoch_seconds"]) for row in rows] == frame["epoch_seconds"].tolist()
    assert [*rows[0]] == [*frame.columns]


def test_a_dataset_is_simulated_by_name_or_itself(folder: Path) -> None:
    how: dict[str, Any] = {"ranks": (2, 4), "profile": "summit", "hidden": 32}
    by_name = gnnloom.simulate("web", **how, catalog=folder).to_json()
    assert by_name == gnnloom.simulate(gnnloom.Catalog(folder)["web"], **how).to_json()
    assert by_name == printed(folder, "simulate", "web", "--ranks", "2,4", "--profile", "summit", "--hidden", "32")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "vertices and edges"),
        ({"dataset": "web", "vertices": 5}, "vertices and edges"),
        ({"vertices": 5}, "vertices and edges"),
        ({**SIZES, "ranks": (4, 2)}, "ranks"),
        ({**SIZES, "ranks": ()}, "ranks"),
        ({**SIZES, "training_share": 1.5}, "training_share"),
        ({**SIZES, "hiden": 5}, "hiden"),
    ],
)
def test_wrong_simulations_are_refused_by_keyword(folder: Path, given: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named) as refused:
        gnnloom.simulate(**given, profile="summit", catalog=folder)
    assert "--" not in str(refused.value)


def test_a_calibration_returns_the_profile_that_plans_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = {**open_profile(folder, "summit").to_json(), "name": "here"}
    asked: list[Any] = []

    def launch(module: str, arguments: list[str], ranks: int, threads: int) -> dict[str, Any]:
        asked.append((module, arguments[:3], ranks, threads))
        return measured

    monkeypatch.setattr("gnnloom.trainer.job.launch.launch_program", launch)
    profile = gnnloom.calibrate(ranks=3, threads=2, name="here", clock="processor", catalog=tmp_path)
    assert asked == [("gnnloom.trainer.planner", ["here", "--clock", "processor"], 3, 2)]
    assert profile == open_profile(tmp_path, "here")
    assert printed(tmp_path, "calibrate", "--name", "here")["stream"] == profile.stream
    with pytest.raises(InputError, match=r"^ranks=?4000: too many|^ranks 4000: too many"):
        gnnloom.calibrate(ranks=4000, catalog=tmp_path)


def test_the_doctor_returns_a_verdict_for_each_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = [Verdict("mpi", FAILED, "none", "install it"), Verdict("cores", OK, "2")]
    for module in ("gnnloom.workflows.api.machine", "gnnloom.workflows.cli.doctor"):
        monkeypatch.setattr(f"{module}.examine", lambda folder: iter(verdicts))
    assert gnnloom.doctor(catalog=tmp_path) == verdicts
    assert [each.to_json() for each in verdicts] == printed(tmp_path, "doctor")["checks"]
    with pytest.raises(InputError, match="wide"):
        gnnloom.doctor(wide=True)
    (tmp_path / "left").touch()
    monkeypatch.setattr("gnnloom.workflows.api.machine.find_leftovers", lambda: [Leftover(tmp_path / "left", 2048)])
    (removed,) = gnnloom.doctor(clean=True)
    assert str(tmp_path / "left") in removed.found
    assert "2.0 KiB" in removed.found
    assert not (tmp_path / "left").exists()


@pytest.mark.parametrize("ranks", [1, 65])
def test_a_check_on_other_numbers_of_ranks_is_refused(ranks: int) -> None:
    with pytest.raises(GnnloomError, match=f"ranks.*{ranks}"):
        gnnloom.check(ranks=ranks)


@pytest.mark.slow
def test_a_check_returns_its_steps() -> None:
    steps = gnnloom.check()
    assert [step.name for step in steps][-2:] == ["compare", "verify"]
    assert all(step.found and step.seconds >= 0 for step in steps)
    assert sum(step.seconds for step in steps) > 0
