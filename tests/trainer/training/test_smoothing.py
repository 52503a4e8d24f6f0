"""Smoothed predictions equal PyTorch Geometric's on the same edges, on any ranks, and replace no others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnloom.storage import Catalog
from gnnloom.storage.runs.predictions import Predictions
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.smoothing_config import SmoothingConfig
from gnnloom.trainer.config.train_config import TrainConfig
from support.covering import FEW_OR_EVERY
from support.mpi import run_program
from support.problems import Problem, problem
from support.tolerance import assert_close

#: They share training runs on several ranks.
pytestmark = pytest.mark.slow

PROBLEMS = {
    given.name: given
    for given in (
        problem("directed", 60, 240, symmetric=False),
        problem("undirected", 61, 150, symmetric=True, loops=False),
        problem("weighted", 45, 200, symmetric=False, weighted=True),
    )
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "p2p-1": {"ranks": 1},
    "p2p-2": {"ranks": 2},
    "p2p-4": {"ranks": 4},
    # Its model multiplies with another normalization.
    "mean-3": {"ranks": 3, "normalization": "mean"},
    "broadcast-3": {"ranks": 3, "algorithm": "broadcast"},
    "summa-4": {"ranks": 4, "algorithm": "summa", "grid": (2, 2)},
    "tensor3d-4": {"ranks": 4, "algorithm": "tensor3d", "grid": (2, 1, 2)},
}
#: Layouts whose runs have the model's own predictions before they are smoothed.
PREDICTED_BEFORE = ("p2p-2", "mean-3", "summa-4")
METHODS: dict[str, dict[str, Any]] = {
    "labels": {"smooth": "labels"},
    "long-labels": {"smooth": "labels", "smooth_steps": 30, "smooth_alpha": 0.5},
    "correct": {"smooth": "correct"},
    "scaled": {"smooth": "correct", "correct_scale": 20.0, "correct_alpha": 0.7, "correct_steps": 9, "smooth_steps": 5},
}
#: Layouts of each method, in the quick tests.
FEW: dict[str, dict[str, tuple[str, ...]]] = {
    "directed": {"labels": ("summa-4",), "correct": ("tensor3d-4",), "scaled": ("mean-3",)},
    "undirected": {"correct": ("broadcast-3",), "scaled": ("p2p-1",)},
    "weighted": {"long-labels": ("p2p-2",), "correct": ("p2p-4",)},
}
EVERY = {
    name: dict.fromkeys(METHODS, tuple(LAYOUTS) if name == "directed" else ("p2p-2", "summa-4")) for name in PROBLEMS
}


def _store(catalog: Catalog, given: Problem) -> None:
    given.store_rows(given.store_grid(catalog, "double"), 1, 2, 3, 4)


def _config(catalog: Catalog, name: str, run: str, **options: Any) -> TrainConfig:
    fixed: dict[str, Any] = {"hidden": (7,), "epochs": 2, "lr": 0.1, "precision": "float64", "threads": 1}
    return TrainConfig.of(catalog=str(catalog.root), dataset=name, run=run, **{**fixed, **options})


class Job:
    """All runs and their predictions."""

    def __init__(self, folder: Path, cases: Mapping[str, Mapping[str, tuple[str, ...]]]) -> None:
        self.catalog, self.cases = Catalog(folder / "catalog"), cases
        trainings, plain, predictions = [], [], []
        for name, method, layout in self:
            _store(self.catalog, PROBLEMS[name]) if name not in self.catalog else None
            config = _config(self.catalog, name, f"{method}-{layout}", **LAYOUTS[layout])
            trainings.append(config.to_json())
            asked = PredictConfig.of_training(config, shards=None, threads=1)
            if layout in PREDICTED_BEFORE:
                plain.append(replace(asked, embeddings=True).to_json())
            predictions.append(asked.with_options(**METHODS[method]).to_json())
        found = run_program(4, "train_all", folder, [*trainings, *plain, *predictions])
        self.results = dict(zip(self, found[-len(predictions) :], strict=True))

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        for name, methods in self.cases.items():
            for method, layouts in methods.items():
                yield from ((name, method, layout) for layout in layouts)

    def predictions(self, name: str, method: str, layout: str) -> Predictions:
        return Run.open(self.catalog[name], f"{method}-{layout}").predictions()


@pytest.fixture(scope="module", params=FEW_OR_EVERY)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp("smoothing"), EVERY if request.param else FEW)


def _reference(given: Problem, scores: np.ndarray, method: str) -> np.ndarray:
    """What PyTorch Geometric makes of the scores."""
    # Here, as every process of a test run collects this module, and the import takes seconds.
    pyg = pytest.importorskip("torch_geometric.nn")
    adjacency = given.adjacency.tocoo()
    edges = torch.from_numpy(np.stack([adjacency.col, adjacency.row]).astype(np.int64))
    weight = torch.from_numpy(adjacency.data.astype(np.float64))
    edges, weight = pyg.conv.gcn_conv.gcn_norm(edges, weight, len(given.label), add_self_loops=False)
    mask = torch.from_numpy(given.training)
    label = torch.from_numpy(given.label)
    config = SmoothingConfig.of(**METHODS[method])
    if config.smooth == "labels":
        hot = torch.nn.functional.one_hot(label.clamp_min(0), 3).double()
        return np.asarray(pyg.LabelPropagation(config.smooth_steps, config.smooth_alpha)(hot, edges, mask, weight))
    model = pyg.CorrectAndSmooth(
        config.correct_steps,
        config.correct_alpha,
        config.smooth_steps,
        config.smooth_alpha,
        autoscale=config.correct_scale == 0,
        scale=config.correct_scale,
    )
    soft = torch.softmax(torch.from_numpy(scores), 1)
    return np.asarray(model(soft, label[mask], mask, edges, weight))


def test_smoothed_scores_equal_those_of_pyg(job: Job) -> None:
    for name, method, layout in job:
        found = job.predictions(name, method, layout)
        smoothed, where = found.array("smoothed_score").read(), f"{name} {method} {layout}"
        expected = _reference(PROBLEMS[name], found.score(), method)
        assert np.abs(expected - (0 if method.endswith("labels") else np.asarray(found.score()))).max() > 0.1, where
        assert_close(smoothed, expected, steps=100, message=where)
        np.testing.assert_array_equal(found.array("smoothed_label").read(), smoothed.argmax(1), where)


def test_accuracies_before_and_after_are_those_of_the_stored_classes(job: Job) -> None:
    for (name, method, layout), result in job.results.items():
        given, found = PROBLEMS[name], job.predictions(name, method, layout)
        for prefix, array in {"": "label", "smoothed_": "smoothed_label"}.items():
            right = found.array(array).read() == given.label
            for split, code in {"train": 1, "val": 2, "test": 3}.items():
                chosen = (given.split == code) & (given.label >= 0)
                assert result[f"{prefix}{split}_accuracy"] == right[chosen].sum() / chosen.sum(), (name, method, layout)
