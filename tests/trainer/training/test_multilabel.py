"""Multi-label training has the losses and F1 scores of the dense reference on any layout."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import scipy.sparse

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.stage import partition_graph
from gnnloom.pipeline.shards.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.shards.row_stage import shard_rows
from gnnloom.pipeline.sources.formats import open_vertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.vertex_data import read_labels
from gnnloom.trainer.data.vertex_rows import VertexRows
from support.dense import DenseMultilabelGCN, from_arrays, normalized, train_dense
from support.edge_files import write_edges
from support.mpi import train_all
from support.tolerance import ADAM_BITS, assert_close, tolerance

N, CLASSES, EPOCHS = 61, 5, 6
LAYOUTS: dict[str, dict[str, Any]] = {
    "p2p-1": {"ranks": 1},
    "p2p-2": {"ranks": 2},
    "p2p-3": {"ranks": 3},
    "p2p-4": {"ranks": 4},
    "broadcast-3": {"ranks": 3, "algorithm": "broadcast"},
    "summa-4": {"ranks": 4, "algorithm": "summa", "grid": (2, 2)},
    "tensor3d-4": {"ranks": 4, "algorithm": "tensor3d", "grid": (1, 4, 1)},
    "tensor3d-212": {"ranks": 4, "algorithm": "tensor3d", "grid": (2, 1, 2)},
}


class Task:
    """A random graph with labels, some unknown, and one run for each layout."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(9)
        self.u, self.v = rng.integers(0, N, (2, 300))
        self.feature = rng.standard_normal((N, 6)).astype(np.float32)
        self.label = rng.integers(0, 2, (N, CLASSES)).astype(np.float32)
        self.label[rng.random((N, CLASSES)) < 0.15] = np.nan
        self.label[7:9] = np.nan
        self.split = rng.integers(0, 4, N).astype(np.uint8)
        self.split[7:9] = 1
        # Class 2 is unknown for all test vertices.
        self.label[self.split == 3, 2] = np.nan
        self.catalog = Catalog(folder / "catalog")
        self.dataset = self._store(folder)
        configs = [self._config(name, **options) for name, options in LAYOUTS.items()]
        configs.append(self._config("start", epochs=1, lr=0.0))
        results = train_all(folder, configs)
        self.results = dict(zip([*LAYOUTS, "start"], results, strict=True))

    def _store(self, folder: Path) -> Dataset:
        dataset, cluster = self.catalog.create("tasks"), InProcessCluster()
        graph = ingest_graph(dataset, write_edges(folder / "e", self.u, self.v, vertices=N), IngestOptions(), cluster)
        for name in ("feature", "label", "split"):
            np.save(folder / f"{name}.npy", getattr(self, name))
        files = {name: str(folder / f"{name}.npy") for name in ("feature", "label", "split")}
        ingest_vertices(dataset, open_vertices("files", (), files), cluster)
        for parts in (1, 2, 3, 4):
            options = PartitionOptions(parts=parts, method="random", seed=2)
            shard_rows(dataset, partition_graph(dataset, graph, options, cluster), cluster)
        shard_grid(dataset, graph, GridOptions((3, 2), "double"), cluster)
        return dataset

    def _config(self, run: str, **options: Any) -> TrainConfig:
        fixed: dict[str, Any] = {
            "hidden": (7,),
            "epochs": EPOCHS,
            "lr": 0.05,
            "dtype": "float64",
            "seed": 4,
            "threads": 1,
            "ranks": 1,
        }
        fixed |= {"feature_norm": "none", "save_embeddings": True, "eval_every": 0}
        return TrainConfig(catalog=str(self.catalog.root), dataset="tasks", run=run, **{**fixed, **options})

    @property
    def known(self) -> np.ndarray:
        return np.where(np.isnan(self.label), -1, self.label).astype(int)

    def dense(self) -> DenseMultilabelGCN:
        ones = np.ones(len(self.u))
        adjacency = scipy.sparse.coo_array((ones, (self.v, self.u)), shape=(N, N)).toarray() + np.eye(N)
        operator = normalized((adjacency > 0).astype(float), "symmetric")
        arrays = dict(read_checkpoint(self.dataset.run_path("start") / "checkpoint").arrays)
        start = from_arrays(operator, arrays, 2)
        return DenseMultilabelGCN(operator, start.weights, start.biases)


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return Task(tmp_path_factory.mktemp("multilabel"))


def f1(label: np.ndarray, predicted: np.ndarray) -> float:
    """F1 over the known labels, from its definition by precision and recall."""
    hits = (predicted & (label == 1)).sum()
    if hits == 0:
        return 0.0
    precision, recall = hits / (predicted & (label >= 0)).sum(), hits / (label == 1).sum()
    return float(2 * precision * recall / (precision + recall))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_losses_parameters_and_figures_equal_the_dense_reference(task: Task, layout: str) -> None:
    dense, result = task.dense(), task.results[layout]
    losses = train_dense(dense, task.feature.astype(float), task.known, task.split == 1, EPOCHS, 0.05, "adam")
    assert_close(result["loss"], losses, steps=EPOCHS * 3)
    arrays = dict(read_checkpoint(task.dataset.run_path(layout) / "checkpoint").arrays)
    for mine, expected in zip(from_arrays(dense.operator, arrays, 2).parameters, dense.parameters, strict=True):
        assert_close(mine, expected, steps=EPOCHS * 3, bits=ADAM_BITS)
    scores = dense.layers(task.feature.astype(float))[-1]
    for name, code in (("train", 1), ("val", 2), ("test", 3)):
        label, predicted = task.known[task.split == code], scores[task.split == code] > 0
        right = ((label == 1) == predicted)[label >= 0]
        each = [f1(label[:, column], predicted[:, column]) for column in range(CLASSES)]
        assert result[f"{name}_accuracy"] == pytest.approx(right.mean(), rel=tolerance())
        assert result[f"{name}_f1"] == pytest.approx(f1(label, predicted), rel=tolerance())
        assert result[f"{name}_macro_f1"] == pytest.approx(np.mean(each), rel=tolerance())


@pytest.mark.parametrize("layout", ["p2p-3", "tensor3d-4", "summa-4"])
def test_predictions_are_zeros_and_ones_in_the_order_of_the_vertices(task: Task, layout: str) -> None:
    dense = task.dense()
    train_dense(dense, task.feature.astype(float), task.known, task.split == 1, EPOCHS, 0.05, "adam")
    predictions = Run(task.dataset.run_path(layout)).predictions()
    expected = dense.layers(task.feature.astype(float))[-1]
    assert_close(predictions.score(), expected, steps=EPOCHS * 3, bits=ADAM_BITS)
    np.testing.assert_array_equal(predictions.multilabel(), expected > 0)
    assert "label" not in predictions


class Rows:
    """Labels of some rows of shards that declare three classes."""

    prefix = "row/00000"

    def __init__(self, label: list[list[int]]) -> None:
        self.shards = SimpleNamespace(num_classes=3, artifact=SimpleNamespace(path=Path("shards")))
        self.arrays = {"multilabel": np.array(label, np.int8), "split": np.ones(len(label), np.uint8)}

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def read(self, name: str, dtype: np.dtype[Any] | None = None) -> np.ndarray:
        return self.arrays[name]


def rows(label: list[list[int]]) -> VertexRows:
    return cast("VertexRows", Rows(label))


def test_labels_that_do_not_fit_the_classes_are_named() -> None:
    assert read_labels(rows([[0, 1, -1], [-1, -1, -1]])).training.tolist() == [True, False]
    with pytest.raises(InputError, match="multilabel: 2 columns, expected the 3 classes"):
        read_labels(rows([[0, 1]]))
    with pytest.raises(InputError, match="multilabel: labels from 0 to 2, expected 0, 1 or -1"):
        read_labels(rows([[0, 1, 2]]))
