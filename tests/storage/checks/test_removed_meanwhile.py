"""Verifying a dataset while another process removes an artifact reports no damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.format.artifact import Artifact
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
