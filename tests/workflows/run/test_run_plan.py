"""`gnnloom run` shows recipes and plans without running anything, and says when a change makes a second graph."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage.format.artifact import MANIFEST
from gnnloom.workflows.cli.main import cli
from gnnloom.workflows.recipe.request import RecipeRequest
from gnnloom.workflows.run.run_recipe import prepare
from support.recipes import RECIPE, run_arguments, run_here
from support.warnings_logged import warnings_logged


def gnnloom(*arguments: str) -> str:
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def plan(folder: Path, *more: str) -> dict[str, Any]:
    content = json.loads(
        gnnloom("--catalog", str(folder / "catalog"), "run", str(folder / "recipe.toml"), *more, "--plan", "--json")
    )
    assert isinstance(content, dict)
    return content


@pytest.mark.slow
def test_a_plan_shows_what_is_done_and_what_the_rest_will_need(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    before = plan(tmp_path)["stages"]
    assert [stage["stage"] for stage in before] == ["graph", "vertices", "partition", "shards", "train"]
    assert not any(stage["done"] for stage in before)
    assert all(stage["memory"] > 0 and stage["disk"] > 0 for stage in before)
    assert not (tmp_path / "catalog").exists()
    phases = {stage["stage"]: {phase["phase"]: phase for phase in stage["phases"]} for stage in before}
    assert list(phases["graph"]) == ["scatter", "sort", "vertices"]
    assert list(phases["vertices"]) == ["write rows"]
    assert list(phases["partition"]) == ["store parts", "count exchange", "measure load"]
    assert phases["partition"]["store parts"]["bytes_written"] == 120 * 4
    assert phases["shards"]["shard"]["tasks"] == before[-1]["rank"]["ranks"] == 3
    assert phases["vertices"]["write rows"]["bytes_written"] == 120 * (8 * 4 + 4 + 1)
    shown = gnnloom("--catalog", str(tmp_path / "catalog"), "run", str(path), "--plan")
    assert "shards: exchange as for random parts, an upper bound; the client holds" in shown
    assert "  send lists " in shown
    assert "what each rank of the training reads and sends" in shown
    assignment = RecipeRequest(path, tmp_path / "catalog", last="shards").check()
    prepare(assignment, InProcessCluster(assignment.found.cluster.memory))
    after = plan(tmp_path)
    assert [stage["done"] for stage in after["stages"]] == [True, True, True, True, False]
    # The same training, now projected from the stored graph.
    assert after["stages"][-1]["memory"] == pytest.approx(before[-1]["memory"], rel=0.01)
    assert after["warnings"] == []
    # A changed option makes a second graph, and both the plan and the run say so.
    (warning,) = plan(tmp_path, "--set", "dataset.undirected=false")["warnings"]
    graph = assignment.found.keys["graph"]
    assert all(part in warning for part in (graph, "undirected=True (now False)", "`--graph KEY`"))
    other = RecipeRequest(path, tmp_path / "catalog", ("dataset.undirected=false",), last="graph").check()
    with warnings_logged() as logged:
        prepare(other, InProcessCluster(assignment.found.cluster.memory))
    assert len(logged) == 1
    assert all(part in logged[0] for part in (graph, "undirected=True", "`--graph KEY`"))


def test_a_plan_counts_what_makes_a_partition_out_of_core(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE)

    def phases(preset: str) -> dict[str, dict[str, Any]]:
        changes = ("partition.method=multilevel", f"partition.preset={preset}")
        arguments = [argument for change in changes for argument in ("--set", change)]
        (stage,) = (each for each in plan(tmp_path, *arguments)["stages"] if each["stage"] == "partition")
        return {phase["phase"]: phase for phase in stage["phases"]}

    flat, streaming = phases("flat"), phases("streaming")
    assert list(flat)[:3] == ["store weights", "store nets", "join nets"]
    assert list(flat)[-4:] == ["check loads", "store parts", "count exchange", "measure load"]
    assert flat["fill masks"]["repeats"] == 16
    assert flat["fill masks"]["bytes_written"] == 120 * 16
    # Preset ``auto`` partitions a graph this small in memory, without a boundary to refine.
    assert "find cut nets" not in phases("auto")
    assert {"contract nets", "scatter pins", "inherit parts", "fill masks, level 1"} <= streaming.keys() - flat.keys()


#: Large enough that arrays, rather than the process itself, decide the figures.
LARGER = ("source.vertices=8000", "source.edges=80000", "source.dim=64", "partition.method=random", "train.hidden=64")


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(LARGER, id="rows"),
        pytest.param((*LARGER, "train.algorithm=broadcast"), id="grid", marks=pytest.mark.long),
    ],
)
def test_estimates_are_near_the_figures_of_the_stored_inputs(tmp_path: Path, settings: tuple[str, ...]) -> None:
    path, options = tmp_path / "recipe.toml", [word for setting in settings for word in ("--set", setting)]
    if "train.algorithm=broadcast" in settings:
        settings, options = tuple(each for each in settings if "partition" not in each), options[:6] + options[8:]
    path.write_text(RECIPE.replace('[partition]\nmethod = "random"\n', "[predict]\nembeddings = true\n"))
    estimated = {stage["stage"]: stage for stage in plan(tmp_path, *options)["stages"]}
    for last in ("vertices", "shards"):
        assignment = RecipeRequest(path, tmp_path / "catalog", settings, last=last).check()
        prepare(assignment, InProcessCluster(assignment.found.cluster.memory))
        known = [stage for stage in plan(tmp_path, *options)["stages"] if not stage["done"]]
        assert [stage["stage"] for stage in known][-2:] == ["train", "predict"]
        for stage in known:
            before = estimated[stage["stage"]]
            if stage["stage"] in {"train", "predict"}:
                # Rehearsed once there are shards, and estimated before.
                assert stage["memory"] == pytest.approx(before["memory"], rel=0.1)
            assert stage["disk"] == pytest.approx(before["disk"], rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param((), id="rows"),
        pytest.param(("train.algorithm=summa",), id="grid", marks=pytest.mark.long),
    ],
)
def test_a_rank_reads_and_sends_what_the_plan_of_stored_shards_says(tmp_path: Path, settings: tuple[str, ...]) -> None:
    path, options = tmp_path / "recipe.toml", [word for setting in settings for word in ("--set", setting)]
    path.write_text(RECIPE if not settings else RECIPE.replace('[partition]\nmethod = "random"\n', ""))
    assignment = RecipeRequest(path, tmp_path / "catalog", settings, last="shards").check()
    prepare(assignment, InProcessCluster(assignment.found.cluster.memory))
    rank = plan(tmp_path, *options)["stages"][-1]["rank"]
    result = run_here(run_arguments(str(path), tmp_path / "catalog", *settings))
    assert rank["messages"] * rank["ranks"] == result["messages_sent"]
    assert rank["bytes_sent"] * rank["ranks"] == result["bytes_sent"]
    # Small shards are mostly lists of their arrays, which count as stored and not as read.
    assert max(result["bytes_read"]) <= rank["bytes_read"]
    shards = tmp_path / "catalog" / "tiny" / "shards" / assignment.found.keys["shards"]
    lists = sum(file.stat().st_size for file in (shards / "sections").iterdir())
    assert (shards / MANIFEST).stat().st_size < rank["metadata"] < (shards / MANIFEST).stat().st_size + 2 * lists


def test_recipes_are_listed_and_shown(tmp_path: Path) -> None:
    recipes = {entry["recipe"]: entry["summary"] for entry in json.loads(gnnloom("run", "--list", "--json"))["recipes"]}
    assert recipes["quick-start"].startswith("A model trained in about a minute")
    assert all(summary.endswith(".") for summary in recipes.values())
    assert "cora" in gnnloom("run", "--list")
    assert tomllib.loads(gnnloom("run", "--show", "cora"))["dataset"]["name"] == "cora"
    assert json.loads(gnnloom("run", "--show", "cora", "--json"))["text"] == gnnloom("run", "--show", "cora")
    gnnloom("run", "--new", str(tmp_path / "my.toml"))
    assert tomllib.loads((tmp_path / "my.toml").read_text())["dataset"]["name"] == "my"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "missing argument RECIPE"),
        (["run", "cora", "--list"], "give only one of RECIPE, --list, --show and --new"),
        (["run", "--list", "--show", "cora"], "give only one of RECIPE"),
    ],
)
def test_what_to_run_or_show_is_named_once(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 2
    assert message in done.output


def test_a_plan_counts_the_tasks_of_the_stochastic_model(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE.replace('method = "random"', 'method = "mtkahypar"'))

    def phases(batches: str) -> list[str]:
        changes = ("partition.model=stochastic", f"partition.batches={batches}")
        arguments = [argument for change in changes for argument in ("--set", change)]
        (stage,) = (each for each in plan(tmp_path, *arguments)["stages"] if each["stage"] == "partition")
        return [phase["phase"] for phase in stage["phases"]]

    assert phases("vertex")[:2] == ["draw fresh batches", "measure batches"]
    assert {"restrict nets", "index nets", "keep nets", "choose nets"} <= set(phases("walk"))
