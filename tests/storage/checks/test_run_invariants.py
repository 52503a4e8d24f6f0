"""A run is checked while its training goes on: only damage is reported, and lists that a killed writer left."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.checks import run_invariants
from gnnloom.storage.checks.run_invariants import check_run
from gnnloom.storage.disk.files import read_json, write_json
from gnnloom.storage.errors import CorruptError, IncompleteError
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.format.listing import list_run
from gnnloom.storage.runs.checkpoint import Checkpoint, write_checkpoint
from gnnloom.storage.runs.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run of two epochs with a checkpoint and predictions, which has not finished."""
    run = Run(Catalog(tmp_path).create("web").run_path("first"))
    run.start({"epochs": 3}, 0)
    for epoch in range(2):
        run.append_metrics({"epoch": epoch, "loss": 1.0, "val_accuracy": 0.5})
    for folder in (run.checkpoints, run.best_checkpoint):
        write_checkpoint(folder, Checkpoint(2, {"w": np.ones(4)}, {}))
    run.predictions_aside().mkdir()
    record = write_array(run.predictions_aside(), "label", np.ones(5, np.int32), ("vertex",))
    run.publish_predictions([record], {"epoch": 2})
    list_run(run.path)
    return run


def _finish(run: Run) -> None:
    run.append_metrics({"epoch": 2, "loss": 1.0, "val_accuracy": 0.75})
    run.finish({"epochs": 3, "loss": [1.0, 1.0, 1.0], "val_accuracy": 0.75})


def test_a_run_that_ends_while_its_metrics_are_read_is_not_reported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Run.metrics

    def read_then_finish(self: Run) -> list[dict[str, Any]]:
        metrics = read(self)
        if not self.is_finished:
            _finish(self)
        return metrics

    monkeypatch.setattr(Run, "metrics", read_then_finish)
    assert check_run(run) == 2
    assert check_run(run) == 3


def test_a_checkpoint_that_disappears_during_the_check_is_not_reported(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Vanishing(type(run.path)):  # type: ignore[misc]
        """A path that is gone as soon as somebody has looked at one below the checkpoints."""

        def is_symlink(self) -> bool:
            shutil.rmtree(run.checkpoints, ignore_errors=True)
            return bool(super().is_symlink())

    monkeypatch.setattr(run_invariants, "Path", Vanishing)
    run_invariants._check_links(run.path)
    assert not run.checkpoints.exists()


def test_a_finished_run_whose_metrics_end_in_the_middle_of_a_line_is_damaged(run: Run) -> None:
    _finish(run)
    text = run.metrics_path.read_bytes()
    run.metrics_path.write_bytes(text + text[:20])
    with pytest.raises(CorruptError, match="3 whole lines, although the run has finished 3 epochs"):
        check_run(run)


def test_a_finished_run_that_lacks_a_line_of_its_metrics_is_damaged(run: Run) -> None:
    _finish(run)
    lines = run.metrics_path.read_bytes().splitlines(keepends=True)
    for rest in (b"", bytes(len(lines[-1]))):
        run.metrics_path.write_bytes(b"".join(lines[:-1]) + rest)
        with pytest.raises(CorruptError, match="2 whole lines, although the run has finished 3 epochs"):
            run.metrics()


@pytest.mark.parametrize("name", ["predictions", "checkpoint", "checkpoint/best", "."])
def test_an_outdated_list_of_a_run_is_found_and_written_again(run: Run, name: str) -> None:
    metadata = run.path / name / "zarr.json"
    content = read_json(metadata, sealed=False)
    content["consolidated_metadata"]["metadata"] = {}
    write_json(metadata, content, sealed=False, indent=None)
    with pytest.raises(IncompleteError, match="does not list what is stored"):
        check_run(run)
    Catalog(run.path.parents[2])["web"].collect_garbage()
    assert check_run(run) == 2


@pytest.mark.parametrize("flips", [8, pytest.param(None, marks=pytest.mark.long)])
def test_a_flipped_bit_in_any_group_of_a_run_is_found(run: Run, flips: int | None) -> None:
    """A few drawn places of every list, or every eleventh byte."""
    chosen = random.Random(11)
    groups = [path for path in sorted(run.path.rglob("zarr.json")) if b'"consolidated_metadata"' in path.read_bytes()]
    assert {path.parent.name for path in groups} == {"first", "checkpoint", "best", "00000002", "predictions"}
    for path in groups:
        whole = path.read_bytes()
        places = range(0, len(whole), 11) if flips is None else chosen.sample(range(len(whole)), flips)
        for place in places:
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
            with pytest.raises((CorruptError, IncompleteError)):
                check_run(run)
        path.write_bytes(whole)
    assert check_run(run) == 2
