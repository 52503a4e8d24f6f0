"""Predictions are replaced at once: a kill leaves the former ones or the new ones."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.errors import NotFoundError
from gnnloom.storage.format.arrays import write_array
from gnnloom.storage.runs.run import Run
from gnnloom.storage.upkeep import garbage
from support.small_catalogs import store_small_dataset


class Killed(BaseException):
    """Ends a replacement like a kill: nothing cleans up."""


@pytest.fixture
def dataset(catalog: Catalog) -> Dataset:
    return store_small_dataset(catalog)


def replace_predictions(run: Run, label: int, epoch: int = 3) -> None:
    run.predictions_aside().mkdir(exist_ok=True)
    record = write_array(run.predictions_aside(), "label", np.full(30, label, np.int32), ("vertex",))
    run.publish_predictions([record], {"epoch": epoch})


def nth(number: int, action: Callable[..., object]) -> Callable[..., object]:
    """Run an action, but be killed instead at its call ``number``."""
    calls = [0]

    def counted(*arguments: object, **options: object) -> object:
        calls[0] += 1
        if calls[0] == number:
            raise Killed
        return action(*arguments, **options)

    return counted


#: Before each of the two renames, and before the former predictions are deleted.
MOMENTS = {"first rename": ("rename", 1), "second rename": ("rename", 2), "deletion": ("rmtree", 2)}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_replacement_leaves_the_former_or_the_new_predictions(dataset: Dataset, moment: str) -> None:
    run = Run.open(dataset, "first")
    name, number = MOMENTS[moment]
    owner = Path if name == "rename" else shutil
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, nth(number, getattr(owner, name)))
        with pytest.raises(Killed):
            replace_predictions(run, 1)
    assert run.predictions().label().tolist() in ([0] * 30, [1] * 30)
    run.predictions().verify()
    assert not any(finding.is_damaged for finding in dataset.verify() if finding.kind == "runs")
    dataset.collect_garbage()
    assert [finding.problem for finding in dataset.verify() if finding.kind == "runs"] == [None]
    # The next replacement works from any of these states, and leaves only the new predictions.
    replace_predictions(run, 2)
    assert run.predictions().label().tolist() == [2] * 30
    assert [path.name for path in run.path.iterdir() if "predictions" in path.name] == ["predictions"]


def test_former_predictions_that_a_kill_left_are_garbage_only_beside_the_new_ones(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "QUIET_SECONDS", -1)
    run = Run.open(dataset, "first")
    former = (run.path / "predictions").rename(run.path / "replaced-predictions")
    assert former not in [item.path for item in garbage.find_garbage(dataset)]
    assert run.predictions().label().tolist() == [0] * 30
    replace_predictions(run, 1)
    (run.path / "predictions").rename(former)
    replace_predictions(run, 2)
    former.mkdir()
    assert former in [item.path for item in garbage.find_garbage(dataset)]


def test_predictions_know_their_epoch_and_are_dropped_as_a_whole(dataset: Dataset) -> None:
    run = Run.open(dataset, "first")
    replace_predictions(run, 1, epoch=7)
    assert run.has_predictions_of(7)
    assert not run.has_predictions_of(8)
    assert not run.has_predictions_of(7, "embedding")
    (run.path / "replaced-predictions").mkdir()
    run.drop_predictions()
    with pytest.raises(NotFoundError):
        run.predictions()
    run.drop_predictions()
