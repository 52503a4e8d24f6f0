"""Verifying a dataset while another process removes or replaces something reports no damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.runs.predictions import Predictions
from support.crashing import train
from support.small_catalogs import store_small_dataset


def test_an_artifact_that_is_removed_meanwhile_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = store_small_dataset(Catalog(tmp_path))
    verify = Artifact.verify

    def remove_first(self: Artifact) -> int:
        if self.kind == "shards":
            shutil.rmtree(self.path)
        return verify(self)

    monkeypatch.setattr(Artifact, "verify", remove_first)
    findings = dataset.verify(quick=True)
    assert "shards" not in {finding.kind for finding in findings}
    assert [finding for finding in findings if finding.kind == "graph" and not finding.is_damaged]


@pytest.mark.parametrize("is_replaced", [True, False])
def test_predictions_that_are_replaced_meanwhile_are_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    dataset, verify, calls = Catalog(tmp_path).create("web"), Predictions.verify, []
    train(dataset, 1)

    def replace_first(self: Predictions) -> None:
        calls.append(self.path)
        if len(calls) == 1:
            if is_replaced:
                train(dataset, 2)
            raise FileNotFoundError(self.path / "label")
        verify(self)

    monkeypatch.setattr(Predictions, "verify", replace_first)
    (finding,) = [finding for finding in dataset.verify(quick=True) if finding.kind == "runs"]
    assert finding.is_damaged == (not is_replaced)
    assert len(calls) == 1 + is_replaced
