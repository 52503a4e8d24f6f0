"""A run on a graph with types through the Python interface: trained, predicted, shown, exported, reported, verified."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnloom
from support.lone_training import install
from support.typed_papers import COUNTS, store, tables

OWN = "support.typed_modules:Averages"


@pytest.mark.slow
def test_a_run_is_used_as_every_other_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("matplotlib")
    launcher = install(monkeypatch)
    dataset: Any = store(tmp_path / "catalog", "papers", tables(5))
    gnnloom.features(dataset, feature=np.random.default_rng(7).normal(size=(COUNTS["topic"], 2)), of_type="topic")
    options: dict[str, Any] = {"mode": "neighbor", "of_type": "paper", "model": OWN, "hidden": 8, "fanout": (3, 2)}
    with caplog.at_level(logging.INFO):
        run = gnnloom.train(dataset, **options, batch_size=8, epochs=3, reverse=True, run="own")
    # PyG is not needed for a module of torch alone.
    assert run.state == "finished"
    assert len(run.metrics()["loss"]) == 3
    assert gnnloom.train(dataset, **options, batch_size=8, epochs=3, reverse=True, run="own").result() == run.result()
    assert launcher.jobs == 1
    gnnloom.predict(run)
    frame, vertices = run.frame(), dataset.vertices(of_type="paper")
    assert frame["vertex"].tolist() == dataset.typed_graph().original_id("paper").tolist()
    np.testing.assert_array_equal(frame["class"], run.scores().argmax(1))
    np.testing.assert_array_equal(frame["label"], vertices.label())
    table: Any = gnnloom.export(f"{dataset.name}/own", "predictions", catalog=tmp_path / "catalog")
    assert table["class"].tolist() == frame["class"].tolist()
    assert run.report(tmp_path / "report").exists()
    assert run.state_dict().keys() >= {"module.layers.0.paper.weight"}
    node = dataset.lineage()["runs/own"]
    stored = {f"vertices/{info.key}" for info in dataset.artifacts("vertices")}
    assert {each for each in node.inputs.values() if each.startswith("vertices/")} == stored
    assert {each.partition("/")[0] for each in node.inputs.values()} == {"graph", "transpose", "vertices"}
    assert not [finding for finding in dataset.verify() if finding.problem]
