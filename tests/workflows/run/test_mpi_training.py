"""Inside an MPI job, `gnnloom train` and `predict` use the ranks of the job."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from gnnloom.storage import Catalog
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.comm.communicator import Communicator
from gnnloom.trainer.comm.transports.registry import LaunchedRank
from gnnloom.trainer.job import in_place as place
from gnnloom.trainer.job.in_place import RanksInPlace
from gnnloom.trainer.job.ranks import Ranks, ranks_of_job, settled
from gnnloom.trainer.job.stop import StoppedError, StopRequest
from gnnloom.workflows.cli.main import cli
from support.lone import LoneCommunicator
from support.mpi import TESTS, run_ranks
from support.problems import problem


class FirstOfTwo(LoneCommunicator):
    """Rank 0 of two ranks that agree on everything."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 2

    def gather_numbers(self, numbers: Sequence[float]) -> NDArray[np.float64]:
        return np.array([numbers, numbers], np.float64)


def in_place(comm: Communicator) -> RanksInPlace:
    return RanksInPlace(comm, "gnnloom train", LaunchedRank(), StopRequest())


def test_a_number_of_ranks_that_differs_from_the_job_is_one_error(catalog: Catalog) -> None:
    given = {"catalog": str(catalog.root), "dataset": "web"}
    message = "--ranks 4, but this MPI job has 2 ranks: start 4 ranks, or leave out --ranks"
    with pytest.raises(CollectiveError, match=message) as error:
        settled(in_place(FirstOfTwo()), {**given, "ranks": 4}, restart=False)
    assert (error.value.code, error.value.reports) == (3, True)
    with pytest.raises(CollectiveError, match="no such dataset"):
        settled(in_place(FirstOfTwo()), {**given, "ranks": 2}, restart=False)


def test_a_launcher_of_another_mpi_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "world", LoneCommunicator)
    with (
        pytest.raises(CollectiveError, match=r"2 processes, .* 1 rank: the launcher .*`gnnloom doctor`") as error,
        place.joined("gnnloom train", LaunchedRank(1, 2), StopRequest(), exits=False),
    ):
        pytest.fail("ranks that do not find each other have begun")
    assert error.value.reports is False


def test_a_function_leaves_the_handlers_of_signals_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "world", LoneCommunicator)
    before = [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)]
    with ranks_of_job("gnnloom train", trains=True, is_rank=True):
        assert signal.getsignal(signal.SIGUSR1) != before[0]
    assert [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)] == before


def test_a_job_that_is_asked_to_stop_raises_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "world", LoneCommunicator)

    def work(ranks: Ranks) -> None:
        with ranks.working_for_all():
            signal.raise_signal(signal.SIGUSR1)

    with (
        pytest.raises(StoppedError, match="asked to stop:"),
        ranks_of_job("gnnloom run", trains=True, is_rank=True) as ranks,
    ):
        ranks.agree(lambda: work(ranks))


def test_a_plan_is_printed_by_rank_0_only(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    problem("web", 30, 90, symmetric=True).store(catalog, 1)
    for rank, lines in (("0", 1), ("1", 0)):
        monkeypatch.setenv("PMI_RANK", rank)
        monkeypatch.setenv("PMI_SIZE", "2")
        done = CliRunner().invoke(cli, ["--catalog", str(catalog.root), "train", "web", "--plan", "--json"])
        assert (done.exit_code, len(done.stdout.splitlines())) == (0, lines)


@pytest.mark.slow
def test_wrong_usage_is_printed_once_for_all_ranks(tmp_path: Path) -> None:
    program = str(TESTS / "workflows" / "run" / "programs" / "in_place.py")
    wrong, right = ["train", "web", "--epoch", "2"], ["--catalog", str(tmp_path), "train", "web", "--epochs", "2"]
    # Even the rank that has used its command rightly leaves with the others.
    done = run_ranks(3, program, *(json.dumps([command]) for command in (wrong, right, wrong)))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("Usage: ") == 1
    assert done.stderr.count("Error: No such option '--epoch'.") == 1
    assert "Traceback" not in done.stderr


def test_wrong_usage_before_the_command_is_printed_once_for_all_ranks(tmp_path: Path) -> None:
    program = str(TESTS / "workflows" / "run" / "programs" / "in_place.py")
    done = run_ranks(2, program, json.dumps([["--catlog", str(tmp_path), "train", "web"]]))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("Error: No such option '--catlog'.") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("asked", [["--help"], ["--version"], ["train", "--help"], ["catalog", "ls", "-h"]])
def test_help_is_printed_by_rank_0_only(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for rank, prints in (("0", True), ("1", False)):
        monkeypatch.setenv("PMI_RANK", rank)
        monkeypatch.setenv("PMI_SIZE", "2")
        done = CliRunner().invoke(cli, asked)
        assert (done.exit_code, bool(done.stdout)) == (0, prints)


@pytest.mark.slow
def test_training_and_prediction_run_on_the_ranks_of_the_job(catalog: Catalog, tmp_path: Path) -> None:
    problem("web", 30, 90, symmetric=True).store(catalog, 2)
    before = ["--catalog", str(catalog.root)]
    made = ["--hidden", "4", "--epochs", "2", "--threads", "1", "--json"]
    commands = [
        [*before, "train", "web/first", *made],
        [*before, "train", "web/first", "--ranks", "2", "--epochs", "3", "--json"],
        [*before, "predict", "web/first", "--embeddings", "--json"],
        [*before, "predict", "web/first", "--ranks", "2", "--json"],
        [*before, "train", "web/first", "--ranks", "3"],
    ]
    program = str(TESTS / "workflows" / "run" / "programs" / "in_place.py")
    done = run_ranks(2, program, json.dumps(commands))
    # The last command is refused, once for all ranks.
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("error: ") == 1
    assert "--ranks 3, but this MPI job has 2 ranks" in done.stderr
    assert "Traceback" not in done.stderr
    begun, more, predicted, again = map(json.loads, done.stdout.splitlines())
    assert (begun["ranks"], begun["epochs"], more["epochs"]) == (2, 2, 3)
    assert more["loss"][:2] == begun["loss"]
    assert (predicted["ranks"], predicted["embeddings"], predicted["reused"]) == (2, True, False)
    assert (again["embeddings"], again["reused"]) == (True, True)
    run = Run.open(catalog["web"], "first")
    assert len(run.metrics()) == 3
    assert run.predictions().embedding().shape == (30, 4)


def test_one_rank_chooses_the_algorithm_for_all(catalog: Catalog) -> None:
    problem("web", 30, 90, symmetric=True).store_grid(catalog, "double", grid=(2, 2))
    program = str(TESTS / "workflows" / "run" / "programs" / "in_place.py")
    words = ["--catalog", str(catalog.root), "train", "web", "--epochs", "1", "--threads", "1", "--json"]
    done = run_ranks(2, program, json.dumps([[*words, "--algorithm", "auto"]]))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("algorithm auto: ") == 1
    assert json.loads(done.stdout)["ranks"] == 2
