"""Smoothed predictions are kept with those of the model, as long as both belong to the predicting checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.predict import predict
from support.lone import LoneCommunicator
from support.problems import problem

_OF_MODEL = ("label", "score", "embedding")


@pytest.fixture
def trained(tmp_path: Path) -> TrainConfig:
    catalog = Catalog(tmp_path / "catalog")
    problem("web", 30, 90, symmetric=True).store(catalog, 1)
    config = TrainConfig.of(catalog=str(catalog.root), dataset="web", hidden=(4,), epochs=3, threads=1)
    train(LoneCommunicator(), config)
    return config


def run_of(config: TrainConfig) -> Run:
    return Run.open(Catalog(config.data.catalog)[config.data.dataset], config.run_name)


def predicted(config: TrainConfig, **options: Any) -> dict[str, Any]:
    """Predict; the summary."""
    return predict(LoneCommunicator(), PredictConfig.of_training(config, shards=None, **options))


def arrays(config: TrainConfig) -> dict[str, np.ndarray]:
    stored = run_of(config).predictions()
    return {record.path: stored.array(record.path).read() for record in stored.records}


def assert_kept(before: dict[str, np.ndarray], after: dict[str, np.ndarray], *names: str) -> None:
    for name in names or before:
        np.testing.assert_array_equal(after[name], before[name], name)


def test_smoothing_adds_to_the_predictions_and_changes_none(trained: TrainConfig) -> None:
    predicted(trained, embeddings=True)
    before = arrays(trained)
    assert sorted(before) == sorted(_OF_MODEL)
    assert predicted(trained, smooth="correct")["reused"] is False
    corrected = arrays(trained)
    assert_kept(before, corrected)
    assert sorted(corrected.keys() - before.keys()) == ["smoothed_label", "smoothed_score"]
    # The same again, and less than that, is there already.
    for options in ({"smooth": "correct"}, {"smooth": "correct", "embeddings": True}, {"embeddings": True}, {}):
        assert predicted(trained, **options)["reused"] is True, options
    assert_kept(corrected, arrays(trained))
    # Other numbers, or another method, replace what is smoothed and nothing else.
    for options in ({"smooth": "correct", "correct_scale": 2.0}, {"smooth": "labels"}):
        assert predicted(trained, **options)["reused"] is False
        other = arrays(trained)
        assert_kept(before, other)
        assert np.abs(other["smoothed_score"] - corrected["smoothed_score"]).max() > 0.01
        assert {name: predicted(trained)[name] for name in options} == options


def _fail(*args: object, **kwargs: object) -> NoReturn:
    raise AssertionError("the model runs")


@pytest.mark.parametrize("is_on_disk", [False, True], ids=["memory", "disk"])
def test_what_is_predicted_already_is_smoothed_without_the_model(
    trained: TrainConfig, monkeypatch: pytest.MonkeyPatch, is_on_disk: bool
) -> None:
    summary = predicted(trained, embeddings=True, smooth="correct")
    at_once = arrays(trained)
    for options in ({"smooth": "labels"}, {"smooth": "correct", "embeddings": True}):
        with monkeypatch.context() as patch:
            for name in ("write_predictions", "_write_from_disk", "_checkpoint_of", "restore"):
                patch.setattr(f"gnnloom.trainer.training.predict.{name}", _fail)
            patch.setattr("gnnloom.trainer.training.share.read_feature", _fail)
            patch.setattr("gnnloom.trainer.training.predict.fits_whole", lambda *_: not is_on_disk)
            found = predicted(trained, **options)
        assert (found["reused"], found["epoch"], found["ranks"]) == (False, 3, 1)
    assert found == {**summary, "bytes_read": found["bytes_read"], "peak_memory": found["peak_memory"]}
    # From disk, the adjacency is read for every product.
    assert is_on_disk or found["bytes_read"] < summary["bytes_read"]
    after = arrays(trained)
    assert after.keys() == at_once.keys()
    assert_kept(at_once, after, *(_OF_MODEL if is_on_disk else after))
    # The products of a matrix on disk add in another order.
    np.testing.assert_allclose(after["smoothed_score"], at_once["smoothed_score"], rtol=1e-4, atol=1e-5)


def test_embeddings_that_are_added_later_keep_what_is_smoothed(trained: TrainConfig) -> None:
    predicted(trained, smooth="labels", smooth_steps=2)
    before = arrays(trained)
    assert "embedding" not in before
    assert predicted(trained, embeddings=True)["reused"] is False
    assert_kept(before, arrays(trained))
    assert "embedding" in arrays(trained)


def test_a_training_that_adds_embeddings_keeps_what_is_smoothed(trained: TrainConfig) -> None:
    predicted(trained, smooth="correct")
    before = arrays(trained)
    train(LoneCommunicator(), trained.with_options(save_embeddings=True))
    assert_kept(before, arrays(trained))
    assert "embedding" in arrays(trained)


def test_predictions_of_another_checkpoint_are_not_smoothed_unasked(trained: TrainConfig) -> None:
    predicted(trained, smooth="correct")
    longer = trained.with_options(epochs=5, run=trained.run_name)
    train(LoneCommunicator(), longer)
    assert "smooth" not in predicted(longer)
    assert "smoothed_label" not in arrays(longer)


def test_damaged_smoothed_predictions_are_made_again(trained: TrainConfig) -> None:
    predicted(trained, smooth="correct")
    before = arrays(trained)
    (chunk,) = (run_of(trained).predictions_path / "smoothed_score").rglob("c/0/0")
    chunk.write_bytes(b"\0" * chunk.stat().st_size)
    assert predicted(trained)["reused"] is False
    assert_kept(before, arrays(trained))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"smooth": "labels", "correct_steps": 3}, "correct_steps: needs smooth correct"),
        ({"smooth_alpha": 0.5}, "smooth_alpha: needs smooth labels or correct"),
        ({"smooth": "correct", "smooth_alpha": 1.5}, "smooth_alpha 1.5: expected at most 1"),
        ({"smooth": "correct", "correct_scale": -1.0}, "correct_scale -1.0: expected more than 0, or 0.0"),
        ({"smooth": "both"}, "smooth 'both': expected one of none, labels, correct"),
    ],
)
def test_numbers_of_another_method_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        PredictConfig.of(catalog="c", dataset="d", run="r", **options)


def test_predictions_from_disk_are_smoothed_like_those_from_memory(
    trained: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    predicted(trained, smooth="correct")
    before = arrays(trained)
    run_of(trained).drop_predictions()
    monkeypatch.setattr("gnnloom.trainer.training.predict.fits_whole", lambda *_: False)
    found = predicted(trained, smooth="correct")
    assert "evaluation" in found, "it fits memory"
    after = arrays(trained)
    np.testing.assert_allclose(after["score"], before["score"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after["smoothed_score"], before["smoothed_score"], rtol=1e-3, atol=1e-4)
