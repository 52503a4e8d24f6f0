"""A prediction reads the shards of its training, on this machine as in an MPI job."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gnnloom.storage.errors import InputError
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.workflows.recipe.found import RecipeFacts
from gnnloom.workflows.recipe.sections import PredictSection
from gnnloom.workflows.recipe.stages.predict import prediction


def trained(**options: Any) -> TrainConfig:
    fixed = {"catalog": "c", "dataset": "cora", "ranks": 4, "run": "run", "method": "random", "shards": "abc"}
    return TrainConfig.of(**{**fixed, **options})


def test_an_mpi_job_predicts_with_all_that_chooses_the_shards() -> None:
    config = trained(algorithm="summa", grid=(4, 1), threads=3)
    recipe = SimpleNamespace(predict=PredictSection.of(embeddings=True, smooth="correct", correct_scale=3.0))
    found = cast("RecipeFacts", SimpleNamespace(recipe=recipe, config=config))
    expected = PredictConfig.of(
        catalog="c",
        dataset="cora",
        run="run",
        ranks=4,
        shards="abc",
        method="random",
        grid=(4, 1),
        embeddings=True,
        threads=3,
        smooth="correct",
        smooth_steps=50,
        smooth_alpha=0.8,
        correct_scale=3.0,
    )
    assert prediction(found) == expected


def test_on_other_ranks_grid_shards_are_the_same_and_row_shards_are_looked_for() -> None:
    assert PredictConfig.of_training(trained(), shards="abc").shards == "abc"
    rows = PredictConfig.of_training(trained(), shards="abc", ranks=2)
    assert (rows.ranks, rows.shards, rows.method) == (2, None, "random")
    grid = PredictConfig.of_training(trained(algorithm="summa", grid=(4, 1)), shards="abc", ranks=2)
    assert (grid.ranks, grid.shards, grid.grid) == (2, "abc", None)


def test_wrong_fields_of_a_prediction_are_named() -> None:
    content = PredictConfig.of_training(trained(), shards="abc").to_json()
    assert PredictConfig.of(**content).run == "run"
    with pytest.raises(InputError, match="unknown fields"):
        PredictConfig.of(**{**content, "color": "red"})
    with pytest.raises(InputError, match="ranks 0: expected at least 1"):
        PredictConfig.of(**{**content, "ranks": 0})
