"""`gnnloom train` and `predict` never lose work: they continue, reuse, and refuse in one clear line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.partition.stage import PartitionOptions, partition_graph
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.sources.generators.sbm import StochasticBlockModel
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.errors import ExistsError, InputError
from gnnloom.storage.runs.run import Run
from gnnloom.workflows.cli.main import cli
from support.in_process import answer
from support.lone_training import LoneLauncher, install

MADE = ("--hidden", "4", "--epochs", "3", "--lr", "0.1", "--threads", "1")


@pytest.fixture(scope="module")
def launcher() -> Iterator[LoneLauncher]:
    with pytest.MonkeyPatch.context() as patch:
        yield install(patch)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory, launcher: LoneLauncher) -> Catalog:
    """A small graph with shards for one rank, and a run of three epochs."""
    catalog = Catalog(tmp_path_factory.mktemp("train") / "catalog")
    dataset, cluster = catalog.create("web"), InProcessCluster()
    model = StochasticBlockModel(num_vertices=60, num_edges=300, num_blocks=3, num_features=4, seed=1)
    graph = ingest_graph(dataset, model.edges(), IngestOptions(undirected=True), cluster)
    ingest_vertices(dataset, model.vertices(), cluster)
    shard_rows(dataset, partition_graph(dataset, graph, PartitionOptions(1, "random"), cluster), cluster)
    invoke(catalog, "train", "web/first", *MADE)
    assert launcher.jobs == 1
    return catalog


def invoke(catalog: Catalog, *arguments: str) -> Result:
    done = CliRunner().invoke(cli, ["--catalog", str(catalog.root), *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def told(catalog: Catalog, *arguments: str) -> dict[str, Any]:
    return answer(catalog.root, *arguments)


def files(run: Run) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in run.path.rglob("*") if path.is_file()}


@pytest.fixture
def first(catalog: Catalog) -> Run:
    return Run.open(catalog["web"], "first")


@pytest.mark.parametrize(
    "arguments",
    [
        ("web/first",),
        ("web", "--run", "first"),
        ("web/runs/first", "--run", "first"),
        ("web/first", *MADE),
        ("web/first", "--eval-every", "1"),
    ],
)
def test_a_finished_run_reports_its_result_and_does_nothing(
    catalog: Catalog, launcher: LoneLauncher, first: Run, arguments: tuple[str, ...]
) -> None:
    before, jobs = files(first), launcher.jobs
    done = invoke(catalog, "train", *arguments, "--json")
    assert json.loads(done.stdout) == first.result()
    assert "has finished 3 epochs already" in done.stderr
    assert (files(first), launcher.jobs) == (before, jobs)


def test_the_table_of_a_result_has_the_first_and_the_last_loss(catalog: Catalog, first: Run) -> None:
    losses = first.result()["loss"]
    assert f"{losses[0]:.4g} at first, {losses[-1]:.4g} at last" in invoke(catalog, "train", "web/first").stdout


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        (("--epochs", "2"), InputError, "trained for 3 epochs already, more than epochs 2"),
        (("--lr", "0.5"), ExistsError, r"was made with lr 0.1 \(now 0.5\)"),
        (("--hidden", "4,4"), ExistsError, r"hidden \[4\] \(now \[4, 4\]\)"),
    ],
)
def test_what_would_lose_the_run_is_refused_and_leaves_it_as_it_was(
    catalog: Catalog, first: Run, options: tuple[str, ...], error: type[Exception], said: str
) -> None:
    before = files(first)
    with pytest.raises(error, match=said):
        invoke(catalog, "train", "web/first", *options)
    assert files(first) == before


def test_more_epochs_continue_and_restart_starts_over(catalog: Catalog) -> None:
    straight = told(catalog, "train", "web/straight", *MADE, "--epochs", "5")
    begun = told(catalog, "train", "web/parts", *MADE)
    done = invoke(catalog, "train", "web/parts", "--epochs", "5", "--json")
    assert "continuing at epoch 4 of 5" in done.stderr
    assert json.loads(done.stdout)["loss"] == straight["loss"]
    # All of the configuration is that of the run, the number of epochs included.
    again = told(catalog, "train", "web/parts", "--restart", "--epochs", "3")
    assert again["loss"] == begun["loss"] == straight["loss"][:3]


def test_a_run_without_a_given_name_continues_too(catalog: Catalog, launcher: LoneLauncher) -> None:
    begun = told(catalog, "train", "web", *MADE)
    assert begun["run"].startswith("gcn-p2p-1-")
    jobs = launcher.jobs
    # The number of epochs is not part of the name; if it is not given, it is that of the run.
    without_epochs = [option for option in MADE if option not in {"--epochs", "3"}]
    assert told(catalog, "train", "web", *without_epochs) == begun
    assert launcher.jobs == jobs
    assert len(told(catalog, "train", "web", *MADE, "--epochs", "4")["loss"]) == 4


def test_two_names_of_a_run_must_agree(catalog: Catalog) -> None:
    for command in (("train",), ("predict",), ("export", "predictions", "--out", "x.npy")):
        arguments = [command[0], "web/first", *command[1:], "--run", "second"]
        done = CliRunner().invoke(cli, ["--catalog", str(catalog.root), *arguments])
        assert (done.exit_code, "web/first and --run second" in done.output) == (2, True)


def test_predictions_are_computed_once_and_written_in_any_format(
    catalog: Catalog, launcher: LoneLauncher, tmp_path: Path
) -> None:
    told(catalog, "train", "web/predicted", *MADE)
    made = told(catalog, "predict", "web/predicted", "--embeddings")
    assert (made["reused"], made["embeddings"], made["ranks"]) == (False, True, 1)
    run, jobs = Run.open(catalog["web"], "predicted"), launcher.jobs
    embedding = run.predictions().embedding()
    for name in ("a.csv", "a.npy"):
        result = told(catalog, "predict", "web", "--run", "predicted", "--out", str(tmp_path / name))
        assert (result["reused"], result["out"]) == (True, str(tmp_path / name))
    assert launcher.jobs == jobs
    np.testing.assert_array_equal(run.predictions().embedding(), embedding)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy", allow_pickle=False), run.predictions().label())
    invoke(catalog, "export", "web/predicted", "embeddings", "--out", str(tmp_path / "e.npy"))
    np.testing.assert_array_equal(np.load(tmp_path / "e.npy", allow_pickle=False), embedding)
    # Another checkpoint makes other predictions.
    told(catalog, "train", "web/predicted", "--epochs", "4")
    again = told(catalog, "predict", "web/predicted")
    assert (again["reused"], again["embeddings"], again["epoch"]) == (False, False, 4)
    assert "reused" in invoke(catalog, "predict", "web/predicted").stdout


def test_predictions_without_embeddings_get_them_when_they_are_asked_for(catalog: Catalog) -> None:
    told(catalog, "train", "web/bare", *MADE)
    assert told(catalog, "predict", "web/bare")["embeddings"] is False
    assert told(catalog, "predict", "web/bare", "--embeddings")["reused"] is False
    assert told(catalog, "predict", "web/bare")["embeddings"] is True


def test_a_dataset_with_two_runs_needs_the_name_of_one(catalog: Catalog, tmp_path: Path) -> None:
    told(catalog, "train", "web/unnamed", *MADE)
    with pytest.raises(InputError, match=r"web: .*web/first"):
        told(catalog, "predict", "web")
    with pytest.raises(InputError, match=r"web: .*web/first"):
        told(catalog, "export", "web", "predictions", "--out", str(tmp_path / "p.npy"))
    done = CliRunner().invoke(cli, ["--catalog", str(catalog.root), "export", "web/first", "edges", "--out", "e.npy"])
    assert (done.exit_code, "edges does not take a run" in done.output) == (2, True)
    done = CliRunner().invoke(cli, ["--catalog", str(catalog.root), "predict", "web/"])
    assert (done.exit_code, "write DATASET/RUN" in done.output) == (2, True)


def test_a_plan_of_a_training_starts_nothing(catalog: Catalog, launcher: LoneLauncher, first: Run) -> None:
    before, jobs = files(first), launcher.jobs
    plan = told(catalog, "train", "web/first", "--epochs", "10", "--plan")
    assert (plan["run"], plan["ranks"], plan["first_epoch"], plan["epochs"]) == ("first", 1, 3, 10)
    parts = sum(plan[f"{part}_memory"] for part in ("process", "adjacency", "feature", "workspace", "batch"))
    assert plan["peak_memory"] == [parts]
    # The run itself has told how long an epoch takes.
    assert plan["seconds_from"] == "first"
    assert plan["seconds"] == pytest.approx(7 * plan["epoch_seconds"])
    unknown = told(catalog, "train", "web/second", "--hidden", "5", "--plan")
    assert unknown["seconds_from"] == "profile generic"
    assert unknown["seconds"] == unknown["epochs"] * unknown["epoch_seconds"] > 0
    assert (
        "`gnnloom calibrate` measures this one"
        in invoke(catalog, "train", "web/second", "--hidden", "5", "--plan").stdout
    )
    drawn = invoke(catalog, "train", "web/second", "--mode", "neighbor", "--plan").stdout
    assert "mode neighbor: only an earlier run" in drawn
    assert "peak memory" in invoke(catalog, "train", "web/first", "--plan").stdout
    with pytest.raises(InputError, match="trained for 3 epochs already"):
        told(catalog, "train", "web/first", "--epochs", "2", "--plan")
    assert (files(first), launcher.jobs) == (before, jobs)
    assert "second" not in catalog["web"].runs()


def test_a_plan_of_shards_makes_none(catalog: Catalog) -> None:
    dataset = catalog["web"]
    before = [info.key for info in dataset.artifacts()]
    done = told(catalog, "shard", "web", "--parts", "1", "--plan", "--workers", "1")
    assert (done["is_done"], done["tasks"], done["key"]) == (True, 0, dataset.find("shards").key)
    plan = told(catalog, "shard", "web", "--grid", "2x3", "--plan", "--workers", "1")
    assert (plan["is_done"], plan["layout"], plan["seconds"]) == (False, "grid", None)
    assert "peak memory" in invoke(catalog, "shard", "web", "--grid", "2x3", "--plan").stdout
    assert [info.key for info in dataset.artifacts()] == before
