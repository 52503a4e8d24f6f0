"""The error of a rank reaches the process that started it whole, whatever other ranks print."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from gnnloom.storage.errors import InputError, LaunchError
from gnnloom.trainer.comm.reported_error import ERROR_FOLDER, ReportedError
from gnnloom.trainer.job import launch
from gnnloom.trainer.job.launch import _failure, _run, launch_program
from gnnloom.trainer.job.stop import EXIT_STOPPED, StoppedError
from support.mpi import TESTS

LINES = "first: a line\nerror: second\n  third 'quoted'"


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks find the programs of the tests as modules."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS / "trainer" / "programs"), prepend=os.pathsep)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "kind", "says"),
    [
        ("agreed", InputError, LINES),
        ("alone", InputError, f"rank 1: {LINES}"),
        ("defect", LaunchError, f"rank 1 failed\nZeroDivisionError: {LINES}"),
    ],
)
def test_an_error_is_whole_while_another_rank_prints_much(how: str, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind) as raised:
        launch_program("failing", [how], 2, 1)
    assert str(raised.value) == says


@pytest.mark.slow
def test_a_killed_rank_reports_nothing_and_is_named_by_its_signal() -> None:
    with pytest.raises(LaunchError, match=r"^a rank .*was killed \(signal 9, SIGKILL\)"):
        launch_program("failing", ["killed"], 2, 1)


def test_the_printed_line_counts_where_ranks_do_not_see_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "ERROR_FOLDER", "NOBODY_READS_THIS")
    monkeypatch.setenv(ERROR_FOLDER, "/nowhere/else")
    with pytest.raises(InputError, match=r"^first: a line"):
        launch_program("failing", ["agreed", "quiet"], 2, 1)


def test_the_first_error_counts_and_damaged_files_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ReportedError.first(tmp_path) is None
    monkeypatch.setenv(ERROR_FOLDER, str(tmp_path))
    first, later = ReportedError("of rank 7", 3), ReportedError("due to it", 1)
    first.write(7)
    later.write(0)
    (tmp_path / "1.json").write_text('{"code": 3')
    assert ReportedError.first(tmp_path) == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.json", "1.json", "7.json"]


def test_a_reported_error_explains_more_than_a_request_to_stop() -> None:
    assert isinstance(_failure(EXIT_STOPPED, [], None), StoppedError)
    assert isinstance(_failure(143, [], ReportedError("stopped", EXIT_STOPPED)), StoppedError)
    assert isinstance(_failure(EXIT_STOPPED, [], ReportedError("disk full", 3)), InputError)


#: Stands for ranks that the batch system ends while they have not written a checkpoint yet.
_ENDED = """
import os, signal, sys
print("listens", flush=True)
os.kill(int(sys.argv[1]), signal.SIGTERM)
signal.signal(signal.SIGUSR1, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
signal.pause()
"""


def test_a_preempted_launcher_says_so_whatever_ends_its_ranks() -> None:
    before = signal.getsignal(signal.SIGTERM)
    program = [sys.executable, "-S", "-c", _ENDED, str(os.getpid())]
    code, _ = _run(program, dict(os.environ), lambda _: True)
    assert code == EXIT_STOPPED
    assert signal.getsignal(signal.SIGTERM) is before
