"""Every phase reports its beginning and its end; a terminal shows bars, and a log shows lines."""

from __future__ import annotations

import io
import logging
import sys
import time
from pathlib import Path

import pytest
from numba import njit
from rich.console import Console  # noqa: TID251 - draws on a file

import gnnloom
from gnnloom.storage import Catalog
from gnnloom.storage.meters import PROGRESS, Progress, logged, one_step
from gnnloom.storage.runs.run import Run
from gnnloom.workflows.cli.terminal import progress
from gnnloom.workflows.cli.terminal.progress import shown_epochs, shown_progress
from gnnloom.workflows.interop.progress_bars import BarHandler
from support.small_catalogs import store_small_dataset


def states(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int, int]]:
    records = [record for record in caplog.records if record.name == PROGRESS.name]
    found = [record.args[0] for record in records if isinstance(record.args, tuple) and record.args]
    return [(state.phase, state.done, state.tasks) for state in found if isinstance(state, Progress)]


def test_a_phase_reports_its_beginning_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "gnnloom"):
        list(logged("write", [1, 1], 2, "tasks"))
        with one_step("think"):
            pass
    assert states(caplog) == [("write", 0, 2), ("write", 1, 2), ("write", 2, 2), ("think", 0, 1), ("think", 1, 1)]
    assert "think: done in" in caplog.text


def test_checks_and_archives_report_their_progress(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store_small_dataset(catalog := Catalog(tmp_path / "catalog"))
    with caplog.at_level(logging.DEBUG, PROGRESS.name):
        catalog["web"].verify()
        catalog["web"].export(tmp_path / "web.tar")
        catalog.import_dataset(tmp_path / "web.tar", "copy")
        catalog["web"].push(f"{tmp_path}/remote")
        catalog.pull(f"{tmp_path}/remote", "pulled")
    found = states(caplog)
    assert [phase for phase, done, tasks in found if done == tasks > 0] == [
        "verify",
        "verify",
        "export",
        "import",
        "verify",
        "verify",
        "push",
        "pull",
        "verify",
    ]


def test_scripts_have_bars_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with gnnloom.progress():
        list(logged("write", [1, 1], 2, "tasks"))
    shown = capsys.readouterr()
    assert "write" in shown.err
    assert "2/2" in shown.err
    assert not shown.out
    assert not PROGRESS.handlers


def test_a_terminal_has_a_bar_for_every_phase() -> None:
    screen = io.StringIO()
    bars = BarHandler(Console(file=screen, force_terminal=True, width=120))
    for done in (0, 4):
        state = Progress("sort", done, 4, done * 1_000_000, "entries", 2.0, 1 << 20)
        bars.emit(logging.LogRecord("x", logging.DEBUG, "", 0, "%s", (state,), None))
    bars.close()
    assert "4/4" in screen.getvalue()
    assert "2.0 M entries/s, peak 1.0 MiB" in screen.getvalue()


def test_who_waits_for_kernels_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    @njit
    def twice(number):  # type: ignore[no-untyped-def] # numba finds the types
        return 2 * number

    with shown_progress():
        assert (twice(1), twice(1.0)) == (2, 2.0)
    assert capsys.readouterr().err.count("compiling kernels, once") == 1
    with shown_progress():
        assert twice(3) == 6
    assert capsys.readouterr().err == ""


def test_a_log_shows_finished_epochs_every_few_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    monkeypatch.setattr(progress, "_POLL_SECONDS", 0.01)
    logging.getLogger("gnnloom.trainer").setLevel(logging.WARNING)
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    run = Run(tmp_path / "run")
    with shown_epochs(run, 7):
        time.sleep(0.05)
        run.start({}, 0)
        for epoch in range(3):
            run.append_metrics({"epoch": epoch, "loss": epoch + 0.5})
        time.sleep(0.1)
    assert stderr.getvalue().count("3 of 7 epochs  loss 2.5\n") == 1
    # Before the ranks write, nobody knows with which epoch they begin.
    assert "0 of 7" not in stderr.getvalue()
    assert run.progress_since(time.time() + 60) == (0, None)


def test_the_last_line_shows_all_epochs_unless_the_training_was_too_short_for_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_POLL_SECONDS", 0.01)
    logging.getLogger("gnnloom.trainer").setLevel(logging.WARNING)
    for name, interval, lines in (("long", 0.2, ["1 of 2 epochs  loss 0", "2 of 2 epochs  loss 1"]), ("short", 60, [])):
        monkeypatch.setattr(progress, "INTERVAL", interval)
        monkeypatch.setattr(sys, "stderr", stderr := io.StringIO())
        run = Run(tmp_path / name)
        with shown_epochs(run, 2):
            run.start({}, 0)
            run.append_metrics({"epoch": 0, "loss": 0.0})
            time.sleep(0.3)
            run.append_metrics({"epoch": 1, "loss": 1.0})
        assert stderr.getvalue().splitlines() == lines
