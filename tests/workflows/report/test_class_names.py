"""Reports call classes by their names, which are not markup."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gnnloom
from support.lone_training import install

pytest.importorskip("matplotlib")


def test_classes_have_their_names_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    name, catalog = "<img src=x>", tmp_path / "catalog"
    web = gnnloom.ingest("web", [[0, 1], [1, 2], [2, 3]], undirected=True, workers=0, catalog=catalog)
    split = ["train", "train", "test", "test"]
    gnnloom.features(web, feature=np.eye(4), label=[name, "b", name, "b"], split=split, workers=0)
    gnnloom.partition(web, 1, method="block", workers=0)
    gnnloom.shard(web, 1, workers=0)
    run = gnnloom.train(web, hidden=4, epochs=2, run="named", threads=1)
    run.report(tmp_path / "report")
    text = (tmp_path / "report" / "index.html").read_text()
    assert "&lt;img src=x&gt; (0)" in text
    assert "b (1)" in text
    assert name not in text
