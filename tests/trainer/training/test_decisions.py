"""Ranks decide alike about a run, and its bits are those of one number of threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from support.lone import LoneCommunicator
from support.mpi import run_program
from support.problems import problem
from support.warnings_logged import warnings_logged


@pytest.mark.slow
def test_ranks_whose_metrics_differ_in_the_last_bits_stop_together(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "catalog")
    problem("web", 60, 240, symmetric=True).store(catalog, 2)
    # At learning rate 0 no metric improves, except on the rank whose sums shrink.
    options: dict[str, Any] = {
        "lr": 0.0,
        "patience": 2,
        "epochs": 9,
        "ranks": 2,
        "hidden": (8,),
        "threads": 1,
        "wait_timeout": 30.0,
    }
    configs = [
        TrainConfig.of(
            catalog=str(catalog.root), dataset="web", run=run, eval_every=1, monitor=metric, keep_best=metric, **options
        ).to_json()
        for run, metric in (("training", "loss"), ("validation", "val_loss"))
    ]
    for of_ranks in run_program(2, "last_bits", tmp_path, configs, timeout=100):
        assert of_ranks[0] == of_ranks[1]
        assert of_ranks[0]["best"]["epoch"] == 1
        assert of_ranks[0]["stopped_early"]["best_epoch"] == 1
        assert len(of_ranks[0]["loss"]) == 3


def test_a_run_that_resumes_with_another_number_of_threads_says_so(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "catalog")
    dataset = problem("web", 60, 240, symmetric=True).store(catalog, 1)
    found = []
    with warnings_logged() as logged:
        for epochs, threads in ((1, 1), (2, 1), (3, 2)):
            options: dict[str, Any] = {"run": "threads", "epochs": epochs, "threads": threads, "hidden": (8,)}
            train(LoneCommunicator(), TrainConfig.of(catalog=str(catalog.root), dataset="web", **options))
            found.append(len(logged))
    assert found == [0, 0, 1]
    assert "resumes with 2 threads per rank after epochs with 1" in logged[0]
    assert [line["threads"] for line in Run(dataset.run_path("threads")).metrics()] == [1, 1, 2]
