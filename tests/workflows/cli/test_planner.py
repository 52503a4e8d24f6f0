"""`gnnloom calibrate`, `plan` and `simulate`."""

from __future__ import annotations

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.bench_plan import TRAININGS
from click.testing import CliRunner, Result

import gnnloom
from gnnloom.storage import Catalog
from gnnloom.storage.errors import BudgetError, InputError, NotFoundError
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.planner.profile import open_profile, store_profile
from gnnloom.trainer.planner.stored import settle_algorithm
from gnnloom.workflows.cli.main import cli
from gnnloom.workflows.cli.runs.simulate import RankList
from support.in_process import answer
from support.problems import problem
from support.reported_runs import draw_few_pixels

SIZES = ("--vertices", "111059956", "--edges", "3228124712", "--profile", "perlmutter")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planned") / "catalog"
    problem("web", 300, 1500, symmetric=True).store_grid(Catalog(folder), "double", grid=(2, 2))
    return folder


def invoke(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["--catalog", str(folder), *arguments], catch_exceptions=False)


@pytest.mark.parametrize("ranks", ["0", "4097", str(1 << 62)])
def test_calibrate_refuses_numbers_of_ranks_that_it_could_not_start(folder: Path, ranks: str) -> None:
    done = invoke(folder, "calibrate", "--ranks", ranks, "--name", "never")
    assert done.exit_code == 2
    assert "is not in the range" in done.output
    assert not folder.exists() or not any(folder.rglob("never*"))


def test_calibrate_refuses_ranks_that_would_wait_for_cores(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    with pytest.raises(InputError, match="--ranks 400: "):
        invoke(folder, "calibrate", "--ranks", "400", "--name", "never")


@pytest.mark.slow
def test_calibrate_stores_a_profile_that_plan_uses(folder: Path) -> None:
    found = answer(folder, "calibrate", "--ranks", "2", "--scale", "0.01", "--name", "tiny")
    profile = open_profile(folder, "tiny")
    assert Path(found["path"]).exists()
    assert profile.clock == "wall"
    operations = {"all-reduce", "all-gather", "reduce-scatter", "broadcast"}
    assert {(rate.operation, rate.group) for rate in profile.collectives} == {(name, 2) for name in operations}
    # Plausible for any machine on which the tests run: between 1 MFLOP/s and 10 TFLOP/s, 10 MB/s and 10 TB/s.
    assert profile.bf16 is not None
    assert profile.gradient is not None
    assert profile.bf16.gradient is not None
    tables = [profile.spmm, profile.gemm, profile.gradient]
    tables += [profile.bf16.spmm, profile.bf16.gemm, profile.bf16.gradient]
    assert all(1e-13 < rate < 1e-6 for table in tables for rate in table.values)
    assert 0 <= profile.overlap <= 1
    assert all(0.01 < passes < 100 for passes in (profile.passes, profile.bf16.passes))
    assert all(1e7 < bandwidth < 1e13 for bandwidth in (profile.stream, profile.intra.bandwidth))
    assert all(1e-7 < seconds < 0.1 for seconds in (profile.call, profile.intra.latency))
    assert {
        "spmm",
        "gemm",
        "gradient",
        "spmm bf16",
        "gemm bf16",
        "gradient bf16",
        "passes",
        "passes bf16",
        "stream",
        "overlap",
        "all-reduce",
    } <= profile.spread.keys()
    assert answer(folder, "plan", "web", "--ranks", "2", "--profile", "tiny")["profile"] == "tiny"


def test_plans_are_ranked_and_what_does_not_fit_stays_visible(folder: Path) -> None:
    fixed = ("plan", "web", "--ranks", "4", "--hidden", "32,32", "--precision", "float32", "--profile", "summit")
    plans = answer(folder, *fixed)["plans"]
    assert {plan["algorithm"] for plan in plans} == {
        "p2p", "broadcast", "replicated", "summa", "split3d", "tensor3d",
    }  # fmt: skip
    assert len({(plan["algorithm"], tuple(plan["grid"])) for plan in plans}) == 1 + 1 + 3 + 3 + 6 + 6
    given: dict[str, Any] = {"ranks": 4, "hidden": [32, 32], "precision": "float32", "profile": "summit"}
    assert json.loads(json.dumps(gnnloom.plan("web", catalog=folder, **given))) == plans
    with pytest.raises(InputError, match="plan: no option lr"):
        gnnloom.plan("web", lr=0.1, catalog=folder)  # type: ignore[call-arg]
    first, *others = (plan["epoch_seconds"] for plan in plans)
    assert others == sorted(others)
    # The first one may send less than another that is about as fast.
    assert first <= 1.05 * others[0]
    for plan in plans:
        parts = plan["compute_seconds"] + plan["exposed_seconds"] + plan["waiting_seconds"]
        assert plan["epoch_seconds"] == pytest.approx(parts)
        assert plan["bytes_sent"] == sum(plan["bytes_by_kind"].values())
        assert plan["fits"]
        assert bool(plan["estimated"]) == (plan["algorithm"] == "p2p")
    limit = sorted(plan["peak_memory"] for plan in plans)[10]
    limited = answer(folder, *fixed, "--memory-per-rank", str(limit))["plans"]
    assert [plan["fits"] for plan in limited] == sorted((plan["fits"] for plan in limited), reverse=True)
    assert {plan["peak_memory"] <= limit for plan in limited if not plan["fits"]} == {False}
    assert len(limited) == len(plans)
    assert "(too" in invoke(folder, *fixed, "--memory-per-rank", "1M", "--top", "50").stdout


def _name(plan: dict[str, Any]) -> tuple[Any, ...]:
    return plan["algorithm"], plan["grid"]


def test_both_precisions_are_planned_unless_one_is_given(folder: Path) -> None:
    fixed = ("plan", "web", "--ranks", "4", "--hidden", "32,32", "--profile", "summit")
    both = answer(folder, *fixed)["plans"]
    one = answer(folder, *fixed, "--precision", "bf16")["plans"]
    assert {plan["precision"] for plan in both} == {"float32", "bf16"}
    # The first one of all need not be the first of its precision.
    alone, among = (
        {(plan["algorithm"], *plan["grid"]): plan for plan in each if plan["precision"] == "bf16"}
        for each in (one, both)
    )
    assert alone == among
    by_plan = {(plan["algorithm"], tuple(plan["grid"]), plan["precision"]): plan for plan in both}
    assert len(by_plan) == len(both) == 2 * len(one)
    for (algorithm, grid, precision), plan in by_plan.items():
        if precision == "bf16":
            wide = by_plan[algorithm, grid, "float32"]
            # Gradients and sums stay in float32.
            assert plan["bytes_sent"] <= wide["bytes_sent"]
            # Of narrow layers, the float32 sums may take more than half of the features saves.
            assert plan["peak_memory"] < 1.001 * wide["peak_memory"]


def test_bf16_is_faster_where_traffic_takes_longer_than_calls(folder: Path) -> None:
    # On a graph of a few hundred vertices, the calls of its conversions decide.
    command = ("simulate", *SIZES, "--ranks", "16")
    wide, narrow = (answer(folder, *command, "--precision", name)["plans"] for name in ("float32", "bf16"))
    assert len(narrow) == len(wide) > 0
    for one, other in zip(narrow, wide, strict=True):
        assert one["algorithm"] == other["algorithm"]
        assert one["epoch_seconds"] < 0.9 * other["epoch_seconds"]


def test_sampled_modes_are_refused_with_what_projects_them(folder: Path) -> None:
    for mode in ("subgraph", "minibatch", "neighbor"):
        with pytest.raises(InputError, match=f"mode {mode}: .* mode full; `gnnloom train --mode {mode} --plan`"):
            invoke(folder, "plan", "web", "--ranks", "2", "--mode", mode, "--profile", "summit")


def test_models_without_products_are_refused_with_what_projects_them(folder: Path) -> None:
    with pytest.raises(InputError, match=r"model mlp .* `gnnloom train --model mlp --plan`"):
        invoke(folder, "plan", "web", "--ranks", "2", "--model", "mlp", "--profile", "summit")


def test_a_model_is_planned_on_the_algorithms_that_run_it(folder: Path) -> None:
    plans = answer(folder, "plan", "web", "--ranks", "4", "--model", "gat", "--heads", "2", "--profile", "summit")
    assert {plan["algorithm"] for plan in plans["plans"]} == {"p2p"}


def test_a_missing_profile_and_an_unknown_model_are_refused(folder: Path) -> None:
    with pytest.raises(NotFoundError, match="gnnloom calibrate"):
        invoke(folder, "plan", "web", "--profile", "nowhere")
    with pytest.raises(InputError, match="knows only gcn, sage, gin, gat"):
        invoke(folder, "plan", "web", "--profile", "summit", "--model", "gnnloom.workflows.examples.gcnii:GCNII")


@pytest.mark.slow
def test_simulate_reaches_thousands_of_ranks_and_writes_all_figures(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_few_pixels(monkeypatch)
    table, page = tmp_path / "figures.csv", tmp_path / "page"
    found = answer(
        folder, "simulate", *SIZES, "--ranks", "4,16,...,1024", "--csv", str(table), "--out", str(page)
    )  # fmt: skip
    assert sorted({plan["ranks"] for plan in found["plans"]}) == [4, 16, 64, 256, 1024]
    assert len(found["plans"]) == 5 * 6
    with table.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [float(row["epoch_seconds"]) for row in rows] == [plan["epoch_seconds"] for plan in found["plans"]]
    assert "tensor3d" in (page / "index.html").read_text()
    assert {file.name for file in page.iterdir()} == {"index.html", "seconds.png", "bytes.png"}
    # Each change is from the fastest before to the fastest then.
    for change in found["crossings"]:
        there = [plan for plan in found["plans"] if plan["ranks"] == change["ranks"]]
        best = min(there, key=lambda plan: (not plan["fits"], plan["epoch_seconds"]))
        assert best["algorithm"] == change["now"] != change["before"]
    assert any("random partition" in note for note in found["notes"])


@pytest.mark.slow
def test_in_weak_scaling_the_graph_grows_with_the_ranks(folder: Path) -> None:
    strong, weak = (
        answer(folder, "simulate", *SIZES, "--ranks", "64,256", *more)["plans"] for more in ((), ("--weak",))
    )
    for before, grown in zip(strong, weak, strict=True):
        assert grown["algorithm"] == before["algorithm"]
        if before["ranks"] == 64:
            assert grown == before
        else:
            assert grown["compute_seconds"] > 1.4 * before["compute_seconds"]
            assert grown["bytes_sent"] > 2 * before["bytes_sent"]


@pytest.mark.parametrize("arguments", [(), ("web", "--vertices", "5"), ("--vertices", "5")])
def test_simulate_takes_a_dataset_or_a_size(folder: Path, arguments: tuple[str, ...]) -> None:
    done = invoke(folder, "simulate", *arguments, "--profile", "summit")
    assert done.exit_code == 2
    assert re.search("NAME .*--vertices and --edges", done.output)


def test_lists_of_ranks() -> None:
    ranks = RankList()
    assert ranks.convert("2,4,8", None, None) == (2, 4, 8)
    assert ranks.convert("4,16,...,4096", None, None) == (4, 16, 64, 256, 1024, 4096)
    assert ranks.convert("3, 6, ..., 20", None, None) == (3, 6, 12, 20)
    for wrong in ("", "4,2", "0,1", "2,...,8", "4,16,...", "2,x", "1,1000000"):
        with pytest.raises(Exception, match="is not a list of ascending numbers"):
            ranks.convert(wrong, None, None)


@pytest.fixture(scope="module")
def planned(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog with grid shards and, as the profile of this machine, one with published figures."""
    copied = tmp_path_factory.mktemp("profiled") / "catalog"
    shutil.copytree(folder, copied)
    store_profile(copied, replace(open_profile(copied, "summit"), name="local"))
    return copied


@pytest.fixture
def changeable(planned: Path, tmp_path: Path) -> Path:
    """A copy of that catalog, for a test that changes it."""
    shutil.copytree(planned, tmp_path / "catalog")
    return tmp_path / "catalog"


def test_auto_trains_with_the_fastest_plan_that_has_shards(planned: Path, caplog: pytest.LogCaptureFixture) -> None:
    best = answer(planned, "plan", "web", "--ranks", "4", "--hidden", "32")["plans"]
    # There are no row shards, so p2p is out, however fast it would be.
    fastest = next(plan for plan in best if plan["algorithm"] != "p2p")
    auto = ("train", "web", "--ranks", "4", "--hidden", "32", "--algorithm", "auto", "--plan")
    chosen = answer(planned, *auto)
    assert (chosen["algorithm"], chosen["grid"]) == (fastest["algorithm"], fastest["grid"])
    assert f"algorithm auto: {fastest['algorithm']}" in caplog.text + invoke(planned, *auto).stderr
    with pytest.raises(InputError, match="leave one of them out"):
        invoke(planned, *auto, "--grid", "2x2")


def test_a_machine_that_was_not_measured_is_planned_as_some_small_one(
    changeable: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (changeable / ".profiles" / "local.json").unlink()
    note = "times are for some small machine: `gnnloom calibrate` measures this one"
    found = answer(changeable, "plan", "web", "--ranks", "4", "--hidden", "32")
    assert (found["profile"], found["note"]) == ("generic", note)
    assert note in invoke(changeable, "plan", "web", "--ranks", "4", "--hidden", "32").stdout
    auto = ("train", "web", "--ranks", "4", "--hidden", "32", "--algorithm", "auto", "--plan")
    assert note in invoke(changeable, *auto).stderr + caplog.text


def test_plans_with_the_rates_of_gpus_say_so(planned: Path) -> None:
    note = "times are for the GPUs of perlmutter, for comparison: gnnloom itself computes on CPUs"
    asked = ("web", "--profile", "perlmutter", "--hidden", "32", "--ranks")
    assert answer(planned, "plan", *asked, "4")["note"] == note
    assert answer(planned, "simulate", *asked, "4,16")["notes"][0] == note


def test_auto_says_what_is_missing_without_shards(changeable: Path) -> None:
    web = Catalog(changeable)["web"]
    for info in web.artifacts("shards"):
        shutil.rmtree(info.path)
    with pytest.raises(InputError, match=r"4 ranks .* `gnnloom shard` "):
        invoke(changeable, "train", "web", "--ranks", "4", "--algorithm", "auto", "--plan")


def test_auto_leaves_a_run_with_its_algorithm(changeable: Path) -> None:
    config = TrainConfig.of(catalog=str(changeable), dataset="web", ranks=2, algorithm="tensor3d", run="old")
    Run(Catalog(changeable)["web"].run_path("old")).start(config.to_json(), 0, {})
    given = {"catalog": str(changeable), "dataset": "web", "run": "old", "algorithm": "auto"}
    assert settle_algorithm(given) == {"catalog": str(changeable), "dataset": "web", "run": "old"}


def test_auto_considers_what_can_train_as_asked(planned: Path) -> None:
    # Only row shards can be read from disk, and this dataset has none.
    with pytest.raises(InputError, match=r"has no shards for 4 ranks"):
        invoke(planned, "train", "web", "--ranks", "4", "--algorithm", "auto", "--adjacency", "disk", "--plan")
    with pytest.raises(InputError, match=r"mode minibatch: .* mode full"):
        invoke(planned, "train", "web", "--ranks", "4", "--algorithm", "auto", "--mode", "minibatch", "--plan")


@pytest.mark.slow
def test_auto_is_an_algorithm_in_python_too(changeable: Path) -> None:
    run = gnnloom.train("web", ranks=2, hidden=8, epochs=1, algorithm="auto", catalog=changeable)
    best = answer(changeable, "plan", "web", "--ranks", "2", "--hidden", "8", "--precision", "float32")["plans"]
    fastest = next(plan for plan in best if plan["algorithm"] != "p2p")
    assert (run.result()["algorithm"], run.result()["grid"]) == (fastest["algorithm"], fastest["grid"])
    # The run keeps what was predicted for it; its memory is known better, as the shards are there.
    forecast = run.forecast()
    assert {**forecast, "peak_memory": 0} == {**fastest, "peak_memory": 0, "profile": "local", "clock": "wall"}
    assert forecast["bytes_sent"] == run.result()["bytes_sent"]


def test_the_benchmark_of_the_planner_asks_for_trainings_that_exist() -> None:
    for dataset, model in TRAININGS:
        TrainConfig.of(catalog="c", dataset=dataset, **model)


def test_a_memory_leaves_a_training_as_it_is_or_says_what_is_needed(folder: Path) -> None:
    asked = ("train", "web", "--ranks", "4", "--algorithm", "summa", "--hidden", "8", "--epochs", "2", "--plan")
    assert answer(folder, *asked, "--memory", "16G")["run"] == answer(folder, *asked)["run"]
    with pytest.raises(BudgetError, match="memory 5 MiB: "):
        invoke(folder, *asked, "--memory", "5M")
