"""Whoever looks at the folder of a report sees a whole report, also after a kill."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from gnnloom.workflows.report import folder as folders
from gnnloom.workflows.report.folder import PAGE, write_folder
from gnnloom.workflows.report.page import MARK


def write(folder: Path, text: str) -> None:
    write_folder(folder, lambda: (text, []))


def test_an_older_report_is_replaced_in_one_step(tmp_path: Path) -> None:
    report = tmp_path / "report"
    write(report, f"{MARK}0")
    missing, done = [], threading.Event()

    def watch() -> None:
        while not done.is_set():
            try:
                (report / PAGE).read_text()
            except FileNotFoundError:
                missing.append(time.monotonic())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(100):
        write(report, f"{MARK}{number}")
    done.set()
    watcher.join()
    assert missing == []
    assert (report / PAGE).read_text() == f"{MARK}99"
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_a_writer_that_is_interrupted_leaves_the_older_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "report"
    write(report, f"{MARK}old")

    def interrupt(*names: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(folders, "_put_in_place", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write(report, f"{MARK}new")
    assert (report / PAGE).read_text() == f"{MARK}old"
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_a_file_system_that_cannot_swap_names_takes_two_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    for text in ("old", "new"):
        write(tmp_path / "report", f"{MARK}{text}")
    assert (tmp_path / "report" / PAGE).read_text() == f"{MARK}new"
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    old, new = (tmp_path / f".report.{letter * 32}" for letter in "ab")
    for left in (old, new):
        left.mkdir()
    os.utime(old, (0, 0))
    write(tmp_path / "report", MARK)
    assert sorted(path.name for path in tmp_path.iterdir()) == [new.name, "report"]
