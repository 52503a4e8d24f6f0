"""Input features that are learned: from the same start on every layout, as dense training learns them."""

from __future__ import annotations

import logging
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gnnloom.storage import Catalog
from gnnloom.storage.errors import InputError
from gnnloom.storage.matrix.random_numbers import normal, stream_key
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.comm.agreement import CollectiveError
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.learned_features import first_features
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.predict import predict
from gnnloom.trainer.training.rehearsal.projection import project_training
from support.dense import DenseGCN, from_arrays, normalized, train_dense
from support.lone import LoneCommunicator
from support.lone_training import lone_session
from support.mpi import train_all
from support.problems import problem
from support.sampled import store_for_sampling
from support.tolerance import ADAM_BITS, assert_close

Layout = tuple[str, tuple[int, ...]]

WIDTH, SEED, EPOCHS = 6, 3, 3
BARE = problem("bare", 60, 240, symmetric=False, bare=True)
#: Algorithms and grids, on 1 to 6 ranks; ranks of some have fewer columns than others.
LAYOUTS: tuple[Layout, ...] = (
    ("p2p", (1,)), ("p2p", (2,)), ("p2p", (4,)), ("broadcast", (3,)), ("replicated", (2, 2)), ("summa", (2, 3)),
    ("split3d", (2, 2, 1)), ("tensor3d", (1, 2, 2)),
)  # fmt: skip


def config(catalog: Catalog, run: str, name: str = "bare", **options: Any) -> TrainConfig:
    """A training in float64 on one thread that learns its features; ``options`` override."""
    fixed: dict[str, Any] = {"hidden": (8,), "epochs": EPOCHS, "threads": 1, "precision": "float64", "seed": SEED}
    fixed |= {"embed": WIDTH, "eval_every": 0}
    return TrainConfig.of(catalog=str(catalog.root), dataset=name, run=run, **{**fixed, **options})


def first_numbers(count: int, width: int = WIDTH) -> NDArray[Any]:
    """(count, width) float64 the numbers that the features of a graph start from."""
    numbers: NDArray[Any] = normal(stream_key(SEED, "learned features"), 0, count * width).astype(np.float64)
    return numbers.reshape(count, width) / math.sqrt(width)


def first_model(catalog: Catalog, name: str = "bare") -> DenseGCN:
    """The dense model with the initial weights of all runs."""
    model = lone_session(config(catalog, "never", name)).model
    operator = normalized(BARE.adjacency.toarray(), "symmetric")
    arrays = {key: [each.detach().numpy().copy() for each in getattr(model, key)] for key in ("weights", "biases")}
    return DenseGCN(operator, **arrays)


@pytest.mark.slow
def test_the_losses_are_those_of_dense_training_on_every_layout(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "catalog")
    BARE.store_grid(catalog, "double", grid=(3, 2))
    BARE.store(catalog, 1, 2, 4)
    configs = [
        config(catalog, f"{name}-{'x'.join(map(str, grid))}", algorithm=name, grid=grid, ranks=int(np.prod(grid)))
        for name, grid in LAYOUTS
    ]
    # A run that goes on with the same layout, and one that goes on with others.
    parts, moved = config(catalog, "parts", algorithm="p2p", ranks=2), config(catalog, "moved", ranks=4)
    elsewhere = [
        moved.with_options(epochs=1, algorithm="tensor3d", grid=(1, 2, 2)), moved.with_options(ranks=1, epochs=2), moved
    ]  # fmt: skip
    results = train_all(tmp_path, [*configs, parts.with_options(epochs=1), parts, *elsewhere])
    by_run = {result["run"]: result for result in results}
    assert by_run["parts"]["loss"] == by_run["p2p-2"]["loss"]
    dense, feature = first_model(catalog), first_numbers(60)
    losses = train_dense(dense, feature, BARE.label, BARE.training, EPOCHS, 0.01, "adam", train_features=True)
    for given in (*configs, moved):
        result = by_run[given.run_name]
        assert_close(result["loss"], losses, steps=EPOCHS * 2, message=given.run_name)
        arrays = read_checkpoint(catalog["bare"].run_path(given.run_name) / "checkpoint").arrays
        assert_close(arrays["parameter/feature"], feature, steps=EPOCHS * 2, bits=ADAM_BITS, message=given.run_name)
        assert result["val_accuracy"] is not None


@pytest.mark.parametrize("mode", ["full", "neighbor"])
def test_predictions_are_those_of_the_features_that_were_learned(catalog: Catalog, mode: str) -> None:
    store_for_sampling(catalog, BARE, 1)
    given = config(catalog, mode, mode=mode, final_eval=True)
    result = train(LoneCommunicator(), given)
    arrays = read_checkpoint(catalog["bare"].run_path(mode) / "checkpoint").arrays
    dense = from_arrays(normalized(BARE.adjacency.toarray(), "symmetric"), dict(arrays), 2)
    feature = np.asarray(arrays["parameter/feature"])
    assert not np.allclose(feature, first_numbers(60))
    scores = dense.layers(feature)[-1]
    right = scores.argmax(1) == BARE.label
    for number, split in ((1, "train"), (2, "val"), (3, "test")):
        known = (BARE.split == number) & (BARE.label >= 0)
        assert result[f"{split}_accuracy"] == pytest.approx(right[known].mean())
    predict(LoneCommunicator(), PredictConfig.of_training(given, shards=None, embeddings=True))
    predictions = Run.open(catalog["bare"], mode).predictions()
    np.testing.assert_array_equal(predictions.label(), scores.argmax(1))
    assert_close(predictions.embedding(), dense.layers(feature)[1], dtype=np.float64)


def test_without_features_one_error_names_both_ways_to_have_some(catalog: Catalog) -> None:
    BARE.store(catalog, 1)
    given = config(catalog, "none", embed=0)
    ways = "gnnloom features bare .*learn features instead, with `gnnloom train --embed WIDTH`"
    with pytest.raises(CollectiveError, match=rf"the shards have no feature; add one with `{ways}"):
        train(LoneCommunicator(), given)
    with pytest.raises(
        InputError, match=r"lack features or labels; .*; add features with `gnnloom features bare .*--embed"
    ):
        project_training(given)
    assert project_training(config(catalog, "some")).written_bytes > 2 * 3 * 60 * WIDTH * 8


def test_stored_features_are_not_read_and_the_start_says_so(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    dataset = problem("stored", 60, 240, symmetric=False).store(catalog, 1)
    BARE.store(catalog, 1)
    shutil.rmtree(next(dataset.path.glob("shards/*/row/00000/feature")))
    with caplog.at_level(logging.WARNING):
        result = train(LoneCommunicator(), config(catalog, "first", "stored"))
    said = "run first: learns 6 features per vertex; the 5 stored ones are not read"
    assert [record.getMessage() for record in caplog.records].count(said) == 1
    caplog.clear()
    with caplog.at_level(logging.INFO):
        assert train(LoneCommunicator(), config(catalog, "second"))["loss"] == result["loss"]
    assert not [record for record in caplog.records if "not read" in record.getMessage()]


def test_other_seeds_start_elsewhere_and_rows_have_a_length_of_about_1() -> None:
    vertices, place = np.random.default_rng(0).permutation(5000), Place(torch.float32)
    rows, others = (first_features(vertices, slice(0, 64), 64, seed, place) for seed in (0, 1))
    assert abs(float(rows.square().sum(1).mean()) - 1) < 0.01
    # Five standard errors.
    assert abs(float((rows * others).mean())) < 5 / 64 / math.sqrt(rows.numel())
    some = first_features(vertices[7:9], slice(5, 8), 64, 0, place)
    assert torch.equal(some, rows[7:9, 5:8])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"train_features": True}, "train_features: reads stored features and trains them, but with embed 6"),
        ({"feature_norm": "row"}, "feature_norm 'row': embed 6 does not read stored features"),
        ({"embed": -1}, "embed -1"),
    ],
)
def test_what_would_do_nothing_or_cannot_work_is_refused(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        config(Catalog(tmp_path / "catalog"), "refused", **options)
