"""`gnnloom predict --smooth`, and the same in Python: smoothed classes in files, in addition to those of the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gnnloom
from support.lone_training import install
from support.pair_runs import call


@pytest.mark.slow
def test_files_have_the_smoothed_classes_and_the_run_has_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    root, out = tmp_path / "catalog", tmp_path / "classes.npy"
    call(root, "generate", "web", "sbm", "--vertices", "80", "--edges", "400", "--workers", "0")
    call(root, "partition", "web", "--parts", "1", "--method", "block", "--workers", "0")
    call(root, "shard", "web", "--parts", "1", "--workers", "0")
    call(root, "train", "web/run", "--epochs", "1", "--hidden", "4")
    call(root, "predict", "web/run", "--out", str(out))
    of_model = np.load(out)
    found = call(root, "predict", "web/run", "--smooth", "labels", "--smooth-steps", "5", "--out", str(out))
    assert found["smooth"] == "labels"
    assert (found["smooth_steps"], found["smooth_alpha"]) == (5, 0.9)
    # The labels of the training vertices lead to the classes of the model's blocks; one epoch has learned nothing.
    assert found["smoothed_test_accuracy"] > found["test_accuracy"]
    run = gnnloom.Run.open("web/run", root)
    np.testing.assert_array_equal(run.predictions(), of_model)
    np.testing.assert_array_equal(run.predictions(smoothed=True), np.load(out))
    assert (np.load(out) != of_model).any()
    gnnloom.predict("web/run", smooth="correct", correct_scale=2.0, out=out, catalog=root)
    np.testing.assert_array_equal(np.load(out), run.scores(smoothed=True).argmax(1))
    for what, expected in {"smoothed-predictions": np.load(out), "smoothed-scores": run.scores(smoothed=True)}.items():
        call(root, "export", "web/run", what, "--out", str(tmp_path / "table.npy"))
        np.testing.assert_array_equal(np.load(tmp_path / "table.npy"), expected)
