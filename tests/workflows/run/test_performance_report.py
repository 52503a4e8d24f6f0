"""Stages and whole recipes write Dask's performance report on request."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributed import Client, LocalCluster

from gnnloom.pipeline.cluster.open_cluster import ClusterOptions, open_cluster
from gnnloom.storage.errors import InputError
from gnnloom.workflows.recipe.request import RecipeRequest
from support.recipes import TINY, LocalJob, MpiJob, run_arguments


def check_report(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert "Dask Performance Report" in text
    assert "bokeh" in text


@pytest.mark.long
def test_a_running_scheduler_reports_on_its_workers(tmp_path: Path) -> None:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as local,
        Client(local),
    ):
        address = local.scheduler_address
        with open_cluster(
            ClusterOptions("address", address=address, performance_report=tmp_path / "a.html")
        ) as cluster:
            assert list(cluster.map(abs, [-1])) == [1]
    check_report(tmp_path / "a.html")


def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    for workers, file, message in [
        (0, tmp_path / "a.html", r"\[cluster\] workers = 0, but --performance-report"),
        (1, tmp_path / "none" / "a.html", "no folder"),
    ]:
        settings = (*TINY, f"cluster.workers={workers}")
        with pytest.raises(InputError, match=message):
            RecipeRequest(Path("quick-start"), tmp_path / "catalog", settings, performance_report=file).check()
    assert not (tmp_path / "catalog").exists()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["here", "mpi"])
def test_a_recipe_reports_on_local_workers_and_on_ranks(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "report.html"
    arguments = run_arguments(
        "quick-start", tmp_path, *TINY, more=("--until", "shards", "--performance-report", str(file))
    )
    code, _, log = (LocalJob(arguments) if kind == "here" else MpiJob(4, arguments)).finish()
    assert code == 0, log
    check_report(file)
