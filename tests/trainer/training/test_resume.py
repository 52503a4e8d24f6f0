"""A run resumes only with the data that it began with, and a finished run stays unchanged."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnloom.pipeline.shards.grid.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.disk.files import read_json, write_json
from gnnloom.storage.errors import InputError
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.job.launch import launch, launch_prediction
from support.lone_training import install
from support.mpi import predicting, train_all
from support.problems import Problem, problem

FIRST = problem("first", 30, 90, symmetric=True)
#: The same graph with other features, another graph, and the same graph with wider features.
OTHERS = {
    "features": Problem(**{**vars(FIRST), "name": "features", "feature": FIRST.feature + 1}),
    "graph": Problem(**{**vars(problem("graph", 30, 90, symmetric=True, seed=4)), "feature": FIRST.feature}),
    "wider": Problem(**{**vars(FIRST), "name": "wider", "feature": np.tile(FIRST.feature, 2)}),
}


def config(catalog: Catalog, dataset: str, **options: Any) -> TrainConfig:
    fixed: dict[str, Any] = {"ranks": 2, "hidden": (4,), "epochs": 3, "run": "run", "algorithm": "broadcast"}
    return TrainConfig.of(catalog=str(catalog.root), dataset=dataset, threads=1, **{**fixed, **options})


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = Catalog(tmp_path / "catalog")
    for given in (FIRST, *OTHERS.values()):
        given.store_grid(catalog, "double", grid=(2, 2))
    return catalog


@pytest.mark.slow
def test_a_run_is_not_resumed_on_other_data(catalog: Catalog, tmp_path: Path) -> None:
    train_all(tmp_path, [config(catalog, "first")])
    for name in OTHERS:
        shutil.copytree(catalog["first"].run_path("run"), catalog[name].run_path("run"))
        written = catalog[name].run_path("run") / "config.json"
        content = {key: name if value == "first" else value for key, value in read_json(written).items()}
        write_json(written, content)
    results = train_all(tmp_path, [config(catalog, name, epochs=5) for name in OTHERS])
    said = dict(zip(OTHERS, results, strict=True))
    assert all(result["code"] == 3 for result in results)
    for name, what in (("features", "other vertex data"), ("wider", "other vertex data"), ("graph", "another graph")):
        assert f"was trained on {what}; choose another name" in said[name]["error"]
    # A run without a record of its data may have been trained on any.
    (catalog["wider"].run_path("run") / "inputs.json").unlink()
    (result,) = train_all(tmp_path, [config(catalog, "wider", epochs=5)])
    assert "inputs.json: No such file or directory" in result["error"]


@pytest.mark.slow
def test_a_finished_run_that_is_resumed_keeps_its_result_and_predictions(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, launcher = catalog["first"], install(monkeypatch)
    (before,) = train_all(tmp_path, [config(catalog, "first")])
    shard_grid(dataset, dataset.graph(), GridOptions((2, 2), "single"), InProcessCluster())
    launch_prediction(predicting(dataset, "run", ranks=1))
    score = Run.open(dataset, "run").predictions().score()
    assert launcher.jobs == 1
    assert launch(config(catalog, "first").with_options(permutation="double")) == before
    assert launcher.jobs == 1
    np.testing.assert_array_equal(Run.open(dataset, "run").predictions().score(), score)


def test_a_run_goes_on_with_its_own_shards_beside_shards_of_another_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    catalog = Catalog(tmp_path / "rows")
    dataset = FIRST.store(catalog, 1)
    given = config(catalog, "first", ranks=1, algorithm="p2p")
    launch(given)
    before = Run.open(dataset, "run").inputs()
    OTHERS["graph"].store_rows(dataset, 1)
    with pytest.raises(InputError, match="several shards artifacts"):
        launch(given.with_options(run="new"))
    assert len(launch(given.with_options(epochs=5))["loss"]) == 5
    assert Run.open(dataset, "run").inputs() == before
