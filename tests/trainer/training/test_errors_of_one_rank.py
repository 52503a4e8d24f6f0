"""Whatever goes wrong on one rank ends the job with one line and the documented exit code."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.faults import VARIABLE
from gnnloom.storage.runs.checkpoint import checkpoint_epochs
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from support.lone import LoneCommunicator
from support.mpi import run_ranks
from support.problems import problem

PROBLEM = problem("graph", 60, 240, symmetric=False)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("faults") / "catalog")
    PROBLEM.store(catalog, 1, 3)
    return catalog


def _train_alone(catalog: Catalog, run: str) -> None:
    """Train, or go on with, the run of :func:`_train` in this process, which is quicker."""
    config = TrainConfig.of(catalog=str(catalog.root), dataset="graph", run=run, hidden=(5,), epochs=6, threads=1)
    train(LoneCommunicator(), config)


def _train(catalog: Catalog, run: str, *options: str) -> subprocess.CompletedProcess[str]:
    given = ("graph", "--ranks", "3", "--run", run, "--hidden", "5", "--epochs", "6", "--threads", "1", *options)
    return run_ranks(3, "-m", "gnnloom.trainer", "--catalog", str(catalog.root), *given)


def _check_one_line(done: subprocess.CompletedProcess[str], code: int, says: str) -> None:
    lines = [line for line in done.stderr.splitlines() if "error: " in line]
    assert len(lines) == 1, done.stderr
    assert says in lines[0]
    assert "Traceback" not in done.stderr
    assert "MPI_Abort" not in done.stderr
    assert done.returncode == code


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("metrics.append:ENOSPC:nth=3", "metrics.jsonl: No space left on device"),
        ("metrics.append:memory", "out of memory"),
        pytest.param("checkpoint.publish:EIO", "Input/output error", marks=pytest.mark.long),
        pytest.param("chunk.write:short:rank=0", "No space left on device", marks=pytest.mark.long),
    ],
)
def test_a_failing_disk_is_one_line(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, fault: str, says: str, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv(VARIABLE, fault)
    name = f"run-{abs(hash(request.node.name))}"
    _check_one_line(_train(catalog, name, "--checkpoint-every", "1"), 1, says)
    monkeypatch.delenv(VARIABLE)
    _train_alone(catalog, name)
    assert len(Run.open(catalog["graph"], name).metrics()) == 6


@pytest.mark.slow
def test_a_disk_that_fails_under_a_checkpoint_of_one_rank_is_one_line(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--train-features", "--checkpoint-every", "2")
    # Rank 2 writes only its rows of the features, in a thread, for which the first rank waits.
    monkeypatch.setenv(VARIABLE, "json.write:EIO:rank=2")
    _check_one_line(_train(catalog, "spread", *options), 1, "rank 2: ")
    monkeypatch.delenv(VARIABLE)
    assert _train(catalog, "spread", *options).returncode == 0
    assert checkpoint_epochs(Run.open(catalog["graph"], "spread").checkpoints) == [4, 6]


@pytest.mark.slow
def test_a_disk_that_fills_up_in_a_prediction_is_one_line(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    _train_alone(catalog, "predicted")
    predict = ("predict", "--catalog", str(catalog.root), "graph", "--ranks", "3", "--run", "predicted")
    monkeypatch.setenv(VARIABLE, "chunk.write:ENOSPC:rank=0")
    _check_one_line(run_ranks(3, "-m", "gnnloom.trainer", *predict), 1, "No space left on device")
    monkeypatch.delenv(VARIABLE)
    assert run_ranks(3, "-m", "gnnloom.trainer", *predict).returncode == 0


@pytest.mark.slow
def test_damaged_metrics_of_a_run_that_continues_are_one_line(catalog: Catalog) -> None:
    _train_alone(catalog, "damaged")
    path = Path(Run.open(catalog["graph"], "damaged").metrics_path)
    path.write_bytes(b"x" + path.read_bytes())
    _check_one_line(_train(catalog, "damaged", "--epochs", "9"), 3, "metrics.jsonl:1: the checksum is wrong")
