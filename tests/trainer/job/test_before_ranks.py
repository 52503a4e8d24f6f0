"""What can be known without ranks is found before they start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import launch
from support.problems import problem

MISTAKES = [
    ({"model": "gat"}, "the edges have weights, which model gat does not use; choose gcn"),
    ({"mode": "neighbor", "fanout": (5, 5, 5), "hidden": (4,)}, r"fanout 5,5,5: .* 2 layers"),
    ({"task": "number"}, "has no target, which this task predicts"),
    ({"class_weights": "1,2,3,4,5"}, "class_weights '1,2,3,4,5': 5 weights, but the dataset has 3 classes"),
    ({"loss": "nosuch.module:f"}, "loss nosuch.module:f: nosuch.module cannot be imported"),
    ({"metric": "nosuch:f"}, "metric nosuch:f: nosuch cannot be imported"),
]


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("catalog"))
    problem("web", 30, 90, symmetric=True, weighted=True).store(catalog, 2)
    return catalog


@pytest.mark.parametrize(("options", "message"), MISTAKES)
def test_a_training_that_cannot_be_starts_no_rank(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr("subprocess.Popen", None)
    with pytest.raises(InputError, match=message):
        launch(TrainConfig.of(catalog=str(catalog.root), dataset="web", ranks=2, **options))


def test_a_loss_in_the_current_folder_is_found(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("raise RuntimeError")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("subprocess.Popen", None)
    # It is the ranks that import it: nothing here is missing but the function that starts them.
    with pytest.raises(TypeError):
        launch(TrainConfig.of(catalog=str(catalog.root), dataset="web", ranks=2, loss="mine:f"))
