"""Runs begin, stop, continue and fail as promised."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.errors import BudgetError, ExistsError, InputError, LaunchError, NotFoundError
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.run import Run, sole_writer
from gnnloom.trainer.comm.transports.mpi import find_mpiexec
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import launch, launch_prediction, rank_environment
from gnnloom.trainer.job.stop import EXIT_STOPPED
from gnnloom.trainer.training.loop import train
from support.in_process import run_command
from support.lone import LoneCommunicator
from support.mpi import TESTS, predicting, run_ranks, start_command, train_all
from support.problems import Problem, problem
from support.tolerance import assert_close

PROBLEM = problem("graph", 60, 240, symmetric=False)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("lifecycle") / "catalog")
    PROBLEM.store(catalog, 1, 2, 3)
    return catalog


def _config(catalog: Catalog, run: str, **options: Any) -> TrainConfig:
    fixed: dict[str, Any] = {
        "ranks": 2,
        "hidden": (9,),
        "epochs": 10,
        "precision": "float64",
        "dropout": 0.3,
        "threads": 1,
    }
    return TrainConfig.of(catalog=str(catalog.root), dataset="graph", run=run, **{**fixed, **options})


def _arrays(catalog: Catalog, run: str) -> dict[str, np.ndarray]:
    return dict(read_checkpoint(Run.open(catalog["graph"], run).checkpoints).arrays)


def test_ten_epochs_equal_five_and_five_resumed(catalog: Catalog, tmp_path: Path) -> None:
    whole, parts = _config(catalog, "whole"), _config(catalog, "parts", epochs=5, checkpoint_every=2)
    elsewhere = _config(catalog, "elsewhere", epochs=5)
    configs = [whole, parts, elsewhere, parts.with_options(epochs=10)]
    configs += [elsewhere.with_options(epochs=10, ranks=3)]
    straight, _, _, resumed, moved = train_all(tmp_path, configs)
    assert resumed["loss"] == straight["loss"]
    expected, found = _arrays(catalog, "whole"), _arrays(catalog, "parts")
    assert expected.keys() == found.keys()
    assert all(np.array_equal(expected[name], found[name]) for name in expected)
    assert_close(moved["loss"], straight["loss"], steps=10 * 3)
    kept = sorted(path.name for path in Run.open(catalog["graph"], "parts").checkpoints.iterdir() if path.is_dir())
    assert kept == ["00000008", "00000010"]


@pytest.mark.slow
def test_errors_that_all_ranks_know_of_are_reported_once(catalog: Catalog, tmp_path: Path) -> None:
    empty = problem("no-training", 20, 40, symmetric=True)
    Problem(**{**vars(empty), "split": np.full(20, 3)}).store(catalog, 2)
    configs = [
        _config(catalog, "no-training").with_options(dataset="no-training"),
        _config(catalog, "no-shards", ranks=2, method="kahypar"),
        _config(catalog, "diverges", optimizer="sgd", lr=1e300, weight_decay=1.0),
        _config(catalog, "first"),
        _config(catalog, "first", hidden=(5,)),
        _config(catalog, "first", epochs=3),
    ]
    results = train_all(tmp_path, configs)
    assert "no vertex has a label and is in the training split" in results[0]["error"]
    assert "has no shards" in results[1]["error"]
    assert "the loss of epoch" in results[2]["error"]
    assert results[3]["state"] == "finished"
    assert "hidden [9] (now [5])" in results[4]["error"]
    assert "trained for 10 epochs already" in results[5]["error"]
    assert [result.get("code") for result in results] == [3, 3, 1, None, 3, 3]


def test_a_rank_that_raises_ends_the_job_with_its_traceback(catalog: Catalog) -> None:
    started = time.perf_counter()
    done = run_ranks(3, str(TESTS / "trainer/programs/misbehave.py"), "raise", str(catalog.root), "graph", "3")
    assert time.perf_counter() - started < 60  # mostly the start of the ranks
    assert done.returncode != 0
    assert "ZeroDivisionError: rank 1 fails in epoch 2" in done.stderr
    # The other ranks did not go on: of five epochs at most three were written.
    assert len(Run.open(catalog["graph"], "raise").metrics()) <= 3


def test_a_rank_opens_only_its_own_shard(catalog: Catalog) -> None:
    done = run_ranks(3, str(TESTS / "trainer/programs/misbehave.py"), "trace", str(catalog.root), "graph", "3")
    assert done.returncode == 0, done.stderr
    opened = re.findall(r"OPENED (\d) (\S+)", done.stderr)
    rows = [(int(rank), re.search(r"/row/(\d{5})/", path)) for rank, path in opened]
    assert {rank for rank, _ in rows} == {0, 1, 2}
    assert all(int(row[1]) == rank for rank, row in rows if row)
    others = {(int(rank), Path(path).name) for rank, path in opened if "/row/" not in path}
    lists = {(rank, f"row-{rank:05d}.json") for rank in range(3)}
    assert others <= lists | {(rank, name) for rank in range(3) for name in ("manifest.json", "zarr.json")}


def _begin(catalog: Catalog, run: str, *options: str) -> subprocess.Popen[str]:
    """Begin to train on two ranks."""
    arguments = ["--catalog", str(catalog.root), "train", f"graph/{run}", "--ranks", "2", *options]
    return start_command(*arguments, stderr=subprocess.PIPE)


@pytest.mark.slow
def test_sigterm_writes_a_checkpoint_and_the_run_can_be_resumed(catalog: Catalog) -> None:
    endless = _config(catalog, "preempted", epochs=1_000_000, eval_every=0)
    options = ["--hidden", "9", "--epochs", "1000000", "--precision", "float64", "--dropout", "0.3", "--threads", "1"]
    with _begin(catalog, "preempted", *options, "--eval-every", "0") as process:
        run = Run(catalog["graph"].run_path("preempted"))
        deadline = time.perf_counter() + 90
        while len(run.metrics()) < 3 and time.perf_counter() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == EXIT_STOPPED, errors
    trained = len(run.metrics())
    assert read_checkpoint(run.checkpoints).epoch == trained
    # Goes on in this process, which is quicker.
    result = train(LoneCommunicator(), endless.with_options(epochs=trained + 2, ranks=1))
    assert len(result["loss"]) == trained + 2
    summary = launch_prediction(predicting(catalog["graph"], "preempted", ranks=3, embeddings=True))
    assert Path(summary["path"]).is_dir()
    assert run.predictions().embedding().shape == (60, 9)


@pytest.mark.slow
def test_sigterm_ends_ranks_that_have_not_begun_within_seconds(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As long as its ranks read, a training has nothing to keep, and they look at no request.
    begun = tmp_path / "begun"
    (tmp_path / "endless.py").write_text(
        f"import pathlib, time\ndef loss(*_):\n    pass\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(600)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with _begin(catalog, "endless", "--hidden", "4", "--loss", "endless:loss") as process:
        deadline = time.perf_counter() + 90
        while not begun.exists() and time.perf_counter() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == EXIT_STOPPED
    assert "error: stopped; the same command" in errors
    assert not Run(catalog["graph"].run_path("endless")).exists


def test_a_training_that_cannot_fit_the_memory_is_refused_before_it_reads(catalog: Catalog) -> None:
    command = ["--catalog", str(catalog.root), "train", "graph/huge", "--ranks", "2", "--hidden", "1000000,1000000"]
    done = run_command(*command)
    assert done.returncode == BudgetError.exit_code
    (line,) = [line for line in done.stderr.splitlines() if "error" in line]
    assert re.search(
        r"2 ranks on this machine will need about [\d,.]+ GiB of memory, but only [\d,.]+ [GM]iB are", line
    )
    assert not Run(catalog["graph"].run_path("huge")).exists


@pytest.mark.slow
def test_ranks_do_not_touch_a_run_that_another_process_writes(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    config = _config(catalog, "taken", epochs=2)
    run = Run(catalog["graph"].run_path("taken"))
    by_hand = ("-m", "gnnloom.trainer", "--catalog", config.data.catalog, "graph", "--ranks", "2", "--run", "taken")
    with sole_writer(run):
        done = run_ranks(2, *by_hand)
        assert not run.exists
    assert done.returncode == ExistsError.exit_code
    assert done.stderr.count("error: ") == 1
    assert "another process is training it" in done.stderr
    train(LoneCommunicator(), config.with_options(ranks=1))
    trained = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    # The error of the ranks is raised with its own class, and not logged as well.
    with caplog.at_level("INFO"), sole_writer(run), pytest.raises(InputError, match=r"^run taken: "):
        launch_prediction(predicting(catalog["graph"], "taken", ranks=2))
    assert "error:" not in caplog.text
    assert trained == {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}


def test_the_launcher_refuses_before_it_starts_ranks(catalog: Catalog) -> None:
    with pytest.raises(NotFoundError, match="parts=5"):
        launch(_config(catalog, "five", ranks=5))
    with pytest.raises(InputError, match="hidden"):
        _config(catalog, "bad", hidden=(0,))
    with pytest.raises(InputError, match=r"seed 99999999999999999999: expected at most 2\^63 - 1"):
        _config(catalog, "bad", seed=99999999999999999999)


def test_a_wrong_number_of_ranks_by_hand_is_one_clear_error(catalog: Catalog) -> None:
    done = run_ranks(3, "-m", "gnnloom.trainer", "--catalog", str(catalog.root), "graph", "--parts", "2")
    assert done.returncode == InputError.exit_code
    assert done.stderr.count("error:") == 1
    assert "Traceback" not in done.stderr
    assert "the run has 3" in done.stderr


def test_a_missing_launcher_is_a_launch_error_with_advice(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(LaunchError, match="pip install mpich"):
        launch(_config(catalog, "no-mpi"))


def test_ranks_share_the_cores() -> None:
    assert rank_environment(10_000)["OMP_NUM_THREADS"] == "1"
    assert rank_environment(1, threads=3)["OMP_NUM_THREADS"] == "3"
    assert Path(find_mpiexec()).exists()
