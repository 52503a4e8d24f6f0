"""What another process removes or replaces meanwhile is neither damage nor a failure."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.disk.work_folder import remove_tree_and_scratch
from gnnloom.storage.errors import NotFoundError
from gnnloom.storage.faults import VARIABLE, InjectedError, forget_plans
from gnnloom.storage.format.artifact import Artifact
from gnnloom.storage.runs.predictions import Predictions
from gnnloom.storage.upkeep import removal
from gnnloom.storage.upkeep.lineage import lineage
from support.crashing import train
from support.small_catalogs import store_small_dataset


def test_an_artifact_that_is_removed_meanwhile_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = store_small_dataset(Catalog(tmp_path))
    verify = Artifact.verify

    def remove_first(self: Artifact, *each: Any) -> int:
        if self.kind == "shards":
            shutil.rmtree(self.path)
        return verify(self, *each)

    monkeypatch.setattr(Artifact, "verify", remove_first)
    findings = dataset.verify(quick=True)
    assert "shards" not in {finding.kind for finding in findings}
    assert [finding for finding in findings if finding.kind == "graph" and not finding.is_damaged]


def test_an_artifact_that_is_removed_twice_at_once_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = store_small_dataset(Catalog(tmp_path))
    key = dataset.find("shards").key

    def remove_first(of: Dataset) -> Mapping[str, Any]:
        found = lineage(of)
        shutil.rmtree(of.path / "shards" / key)
        return {name: node for name, node in found.items() if not name.startswith("shards/")}

    monkeypatch.setattr(removal, "lineage", remove_first)
    with pytest.raises(NotFoundError, match=f"dataset web has no shards/{key}"):
        dataset.remove_artifact("shards", key)


def test_a_dataset_that_is_removed_twice_at_once_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog(tmp_path)
    store_small_dataset(catalog)

    def remove_first(path: Path, pattern: str) -> None:
        shutil.rmtree(path)
        remove_tree_and_scratch(path, pattern)

    monkeypatch.setattr("gnnloom.storage.catalog.remove_tree_and_scratch", remove_first)
    with pytest.raises(NotFoundError, match="no such dataset"):
        catalog.remove("web")


def _publish_and_fail(dataset: Dataset) -> None:
    """Train on, and fail when the former predictions have lost their name and the new ones have none yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "predictions.publish:raise")
        forget_plans()
        with pytest.raises(InjectedError):
            train(dataset, 2)
    forget_plans()


@pytest.mark.parametrize(
    ("meanwhile", "is_damaged"),
    [
        pytest.param(lambda dataset: train(dataset, 2), False, id="replaced"),
        pytest.param(_publish_and_fail, False, id="renamed"),
        pytest.param(lambda _: None, True, id="untouched"),
    ],
)
def test_predictions_that_are_replaced_meanwhile_are_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Dataset], None], is_damaged: bool
) -> None:
    dataset, verify, calls = Catalog(tmp_path).create("web"), Predictions.verify, []
    train(dataset, 1)

    def replace_first(self: Predictions) -> None:
        calls.append(self.path)
        if len(calls) == 1:
            meanwhile(dataset)
            raise FileNotFoundError(self.path / "label")
        verify(self)

    monkeypatch.setattr(Predictions, "verify", replace_first)
    (finding,) = [finding for finding in dataset.verify(quick=True) if finding.kind == "runs"]
    assert finding.is_damaged == is_damaged
    assert len(calls) == 2 - is_damaged
