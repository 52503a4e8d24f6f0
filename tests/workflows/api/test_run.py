"""A trained run gives its metrics, weights and predictions to a script or notebook."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch

import gnnloom
from gnnloom.storage.errors import InputError, NotFoundError
from gnnloom.storage.option import options_of
from gnnloom.storage.runs.run import Run as StoredRun
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.workflows.interop.export import metrics_table
from support.small_catalogs import store_small_dataset


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> gnnloom.Run:
    """A run of four epochs on one rank, with predictions and embeddings."""
    root = tmp_path_factory.mktemp("api")
    tiny = gnnloom.generate("tiny", "sbm", vertices=60, edges=300, classes=3, catalog=root, workers=0)
    gnnloom.partition(tiny, 1, method="block", workers=0)
    gnnloom.shard(tiny, 1, workers=0)
    return gnnloom.train(
        tiny,
        hidden=[8],
        epochs=4,
        eval_every=2,
        precision="float64",
        feature_norm="none",
        run="first",
        save_embeddings=True,
    )


@pytest.mark.slow
def test_the_weights_predict_what_the_run_predicted(run: gnnloom.Run) -> None:
    weights, graph, vertices = run.state_dict(), run.dataset.graph(), run.dataset.vertices()
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    width = vertices.num_features
    assert shapes == {"weights.0": (width, 8), "biases.0": (8,), "weights.1": (8, 3), "biases.1": (3,)}
    root = 1 / np.sqrt(graph.degree())
    scaled = torch.from_numpy(root[:, None] * graph.to_scipy().toarray() * root)
    hidden = torch.from_numpy(vertices.feature().astype(np.float64))
    hidden = torch.relu(scaled @ hidden @ weights["weights.0"] + weights["biases.0"])
    scores = (scaled @ hidden @ weights["weights.1"] + weights["biases.1"]).numpy()
    np.testing.assert_allclose(run.scores(), scores, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(run.embeddings(), hidden.numpy(), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(run.predictions(), scores.argmax(1))
    np.testing.assert_array_equal(run.predictions(5, 9), scores.argmax(1)[5:9])


def test_metrics_are_arrays_over_the_epochs(run: gnnloom.Run) -> None:
    metrics = run.metrics()
    assert metrics["epoch"].tolist() == [1, 2, 3, 4]
    assert metrics["loss"].tolist() == run.result()["loss"]
    assert np.isnan(metrics["val_accuracy"]).tolist() == [True, False, True, False]
    assert metrics["bytes_sent"].dtype == metrics["messages_sent"].dtype == np.int64
    # The same names and numbers as in the file that the command exports.
    table = metrics_table(StoredRun(run.path))
    exported = dict(zip([column.name for column in table.columns], *table.pieces(), strict=True))
    assert list(exported) == list(metrics)
    for name, values in metrics.items():
        assert [None if np.isnan(value) else value for value in values.tolist()] == exported[name]
    pytest.importorskip("pandas")
    frame = run.metrics_frame()
    assert frame.index.name == "epoch"
    assert frame["loss"].tolist() == run.result()["loss"]


def test_a_run_is_found_by_name_and_described(run: gnnloom.Run) -> None:
    root = run.dataset.path.parent
    for name in ("tiny/first", "tiny"):
        found = gnnloom.Run.open(name, root)
        assert (found.path, found.state, found.config()["hidden"]) == (run.path, "finished", [8])
    for found in (run.dataset.run("first"), run.dataset.run()):
        assert (found.name, found.path, found.dataset.path) == ("first", run.path, run.dataset.path)
    assert repr(run) == "Run('tiny/first', finished, 4 epochs)"
    shown = run._repr_html_()
    for text in ("run tiny/first", "<td>4 of 4</td>", "<th>val accuracy</th>", "<polyline"):
        assert text in shown
    listed = run.dataset._repr_html_()
    for text in (shown, listed):
        assert (str(run.path / "predictions") in text) == (run.path / "predictions").exists()
    assert "<td>first</td><td>finished</td><td>4</td>" in listed
    with pytest.raises(NotFoundError, match="no run second; there are: first"):
        run.dataset.run("second")
    empty = gnnloom.Run(run.dataset, "second")
    assert (empty.state, empty.metrics()["epoch"].tolist()) == ("not started", [])
    assert "not started" in empty._repr_html_()


@pytest.mark.slow
def test_one_of_several_runs_must_be_named(tmp_path: Path) -> None:
    catalog = gnnloom.Catalog(tmp_path)
    store_small_dataset(catalog)
    gnnloom.ingest("bare", np.array([[0, 1]]), catalog=catalog, workers=0)
    assert gnnloom.Run.open("web", catalog).name == "first"
    with pytest.raises(InputError, match="choose one run of this dataset: none"):
        gnnloom.Run.open("bare", catalog)


@pytest.mark.long
def test_a_report_is_written(run: gnnloom.Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    page = run.report(tmp_path / "report")
    assert "tiny" in page.read_text()
    name = f"{run.dataset.name}/{run.name}"
    files = gnnloom.report(run, name, out=tmp_path / "both", compare=True, catalog=run.dataset.path.parent)
    assert [file.suffix for file in files].count(".html") == 1


def test_reports_are_of_runs_that_are_named(run: gnnloom.Run) -> None:
    with pytest.raises(InputError, match="at least one run"):
        gnnloom.report()
    with pytest.raises(InputError, match="two runs to compare"):
        gnnloom.report(run, compare=True)


def test_train_lists_its_options_with_their_help() -> None:
    parameters = inspect.signature(gnnloom.train).parameters
    settled = {"catalog", "dataset", "algorithm_options", "mode_options", "task_options"}
    assert set(options_of(TrainConfig)) - settled <= set(parameters)
    assert parameters["epochs"].default == 100
    assert "\n    lr: Learning rate (default: 0.01)" in (gnnloom.train.__doc__ or "")


@pytest.mark.long
def test_predictions_are_made_on_request_and_exported(run: gnnloom.Run, tmp_path: Path) -> None:
    before = run.predictions()
    name, root = f"{run.dataset.name}/{run.name}", run.dataset.path.parent
    again = gnnloom.predict(name, embeddings=True, out=tmp_path / "classes.npy", catalog=root)
    np.testing.assert_array_equal(again.predictions(), before)
    np.testing.assert_array_equal(np.load(tmp_path / "classes.npy"), before)
