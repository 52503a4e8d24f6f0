"""Every task has the losses and figures of the dense reference on any layout; all runs share one MPI job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import numpy as np
import pytest
import scipy.sparse

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.stage import partition_graph
from gnnloom.pipeline.shards.grid.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.sources.format import open_vertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.errors import InputError
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.storage.runs.run import Run
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.open_shards import VertexRows
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.registry import TASKS
from support.covering import FEW_OR_EVERY
from support.dense import DenseGCN, DenseMultilabelGCN, from_arrays, normalized, train_dense
from support.edge_files import write_edges
from support.mpi import run_program
from support.tolerance import ADAM_BITS, assert_close, tolerance

#: They share training runs on several ranks.
pytestmark = pytest.mark.slow

N, CLASSES, EPOCHS = 61, 5, 3
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

#: Layouts of the tasks other than the multi-label one; the last three split classes or targets over ranks.
FEWER = ("p2p-1", "p2p-3", "summa-4", "tensor3d-4", "tensor3d-212")
#: Layouts that keep rows of scores whole.
WHOLE = ("p2p-1", "p2p-3", "broadcast-3")
#: Layouts of every promise.
EVERY: dict[str, tuple[str, ...]] = {
    "multilabel": tuple(LAYOUTS),
    "given": FEWER,
    "balanced-labels": FEWER,
    "regression": FEWER,
    "weights": FEWER,
    "balanced": ("p2p-1", "p2p-3"),
    "own": WHOLE,
    "clipped": FEWER,
    "early": ("p2p-1", "p2p-3"),
}
#: Each promise on one layout that keeps rows of scores whole, or that others are compared with, and on one that splits
#: them.
FEW: dict[str, tuple[str, ...]] = {
    "multilabel": ("p2p-3", "summa-4", "tensor3d-4"),
    "given": ("tensor3d-212",),
    "balanced-labels": ("p2p-1",),
    "regression": ("p2p-3", "tensor3d-4"),
    "weights": ("p2p-1", "summa-4"),
    "balanced": ("p2p-3",),
    "own": ("broadcast-3",),
    "clipped": ("p2p-1", "tensor3d-212"),
    "early": ("p2p-3",),
}
WEIGHTS = (0.5, 2.0, 1.0)
#: Of the classes of the task with several labels per vertex.
LABEL_WEIGHTS = (0.5, 2.0, 1.0, 0.0, 3.0)
GCNII = "gnnloom.workflows.examples.gcnii:GCNII"

AnyGCN = TypeVar("AnyGCN", bound=DenseGCN)
#: Names of layouts, by promise.
Layouts = Mapping[str, tuple[str, ...]]


class Task:
    """A random graph with labels, some unknown, and one run for each layout."""

    name = "tasks"

    def __init__(self, folder: Path, catalog: Catalog, layouts: Layouts) -> None:
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
        self.catalog, self.layouts = catalog, layouts
        self.dataset = self._store(folder)
        self.configs = [self.config(name, **LAYOUTS[name]) for name in layouts["multilabel"]]
        self.configs.append(self.config("start", epochs=1, lr=0.0))
        if type(self) is Task:
            weights = {"given": ",".join(map(str, LABEL_WEIGHTS)), "balanced-labels": "balanced"}
            self.configs += [
                self.config(f"{case}-{layout}", class_weights=given, save_embeddings=False, **LAYOUTS[layout])
                for case, given in weights.items()
                for layout in layouts[case]
            ]
        self.results: dict[str, dict[str, Any]] = {}

    def _store(self, folder: Path) -> Dataset:
        dataset, cluster = self.catalog.create(self.name), InProcessCluster()
        graph = ingest_graph(dataset, write_edges(folder / "e", self.u, self.v, vertices=N), IngestOptions(), cluster)
        names = ("feature", self.labels, "split")
        for name in names:
            np.save(folder / f"{name}.npy", getattr(self, name))
        files = {name: str(folder / f"{name}.npy") for name in names}
        ingest_vertices(dataset, open_vertices("files", (), files), cluster)
        for parts in (1, 2, 3, 4):
            options = PartitionOptions(parts=parts, method="random", seed=2)
            shard_rows(dataset, partition_graph(dataset, graph, options, cluster), cluster)
        shard_grid(dataset, graph, GridOptions((3, 2), "double"), cluster)
        return dataset

    #: The file that holds the labels.
    labels = "label"

    def config(self, run: str, **options: Any) -> TrainConfig:
        fixed: dict[str, Any] = {
            "hidden": (7,),
            "epochs": EPOCHS,
            "lr": 0.05,
            "precision": "float64",
            "seed": 4,
            "threads": 1,
            "ranks": 1,
        }
        fixed |= {"feature_norm": "none", "save_embeddings": True, "eval_every": 0}
        return TrainConfig.of(catalog=str(self.catalog.root), dataset=self.name, run=run, **{**fixed, **options})

    @property
    def known(self) -> np.ndarray:
        return np.where(np.isnan(self.label), -1, self.label).astype(int)

    def dense(self, kind: type[AnyGCN]) -> AnyGCN:
        ones = np.ones(len(self.u))
        adjacency = scipy.sparse.coo_array((ones, (self.v, self.u)), shape=(N, N)).toarray() + np.eye(N)
        operator = normalized((adjacency > 0).astype(float), "symmetric")
        arrays = dict(read_checkpoint(self.dataset.run_path("start") / "checkpoint").arrays)
        start = from_arrays(operator, arrays, 2)
        return kind(operator, start.weights, start.biases)


class DenseRegression(DenseGCN):
    """A dense GCN with the mean squared error over the known targets."""

    def loss(self, scores: np.ndarray, label: np.ndarray, mask: np.ndarray) -> tuple[float, np.ndarray]:
        known = ~np.isnan(label) & mask[:, None]
        error = np.where(known, scores - np.nan_to_num(label), 0.0)
        return float((error**2).sum() / known.sum()), 2 * error / known.sum()


class DenseWeightedLabels(DenseMultilabelGCN):
    """A dense GCN with several weighted labels per vertex, normalized by the weight of the known ones."""

    weights_of_classes: np.ndarray

    def loss(self, scores: np.ndarray, label: np.ndarray, mask: np.ndarray) -> tuple[float, np.ndarray]:
        weight = np.where((label >= 0) & mask[:, None], self.weights_of_classes, 0.0)
        probability = 1 / (1 + np.exp(-scores))
        each = -np.where(label == 1, np.log(probability), np.log(1 - probability))
        return float((each * weight).sum() / weight.sum()), (probability - (label == 1)) * weight / weight.sum()


class DenseWeighted(DenseGCN):
    """A dense GCN with weighted classes, normalized by the weight of the training vertices."""

    weights_of_classes: np.ndarray

    def loss(self, scores: np.ndarray, label: np.ndarray, mask: np.ndarray) -> tuple[float, np.ndarray]:
        rows = np.flatnonzero(mask)
        weight = self.weights_of_classes[label[rows]]
        shifted = scores[rows] - scores[rows].max(1, keepdims=True)
        logarithm = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
        gradient = np.zeros_like(scores)
        gradient[rows] = (np.exp(logarithm) - np.eye(3)[label[rows]]) * weight[:, None]
        each = -logarithm[np.arange(len(rows)), label[rows]]
        return float((each * weight).sum() / weight.sum()), gradient / weight.sum()


class Regression(Task):
    """The same graph with two numbers to predict per vertex, some unknown."""

    name, labels = "prices", "target"

    def __init__(self, folder: Path, catalog: Catalog, layouts: Layouts) -> None:
        rng = np.random.default_rng(3)
        self.target = (rng.standard_normal((N, 2)) * 3 + 1).astype(np.float32)
        self.target[rng.random((N, 2)) < 0.2] = np.nan
        super().__init__(folder, catalog, layouts)
        self.configs = [self.config(name, **LAYOUTS[name]) for name in layouts["regression"]]
        self.configs.append(self.config("start", epochs=1, lr=0.0))
        self.configs.append(self.config("weighted", class_weights="balanced"))


class Classes(Task):
    """The same graph with one class per vertex, and everything that a user may change about its training."""

    name = "classes"

    def __init__(self, folder: Path, catalog: Catalog, layouts: Layouts) -> None:
        super().__init__(folder, catalog, layouts)
        given = ",".join(map(str, WEIGHTS))
        own: dict[str, Any] = {"loss": "support.own_functions:cross_entropy"}
        own |= {"metric": "support.own_functions:margin", "class_weights": given}
        model: dict[str, Any] = {"model": GCNII, "model_options": ("alpha=0.3",), "hidden": (6, 6, 6), "dropout": 0.2}
        clipped: dict[str, Any] = {"optimizer": "sgd", "lr": 0.5, "clip_norm": 0.02, "epochs": 1}
        cases: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
            ("weights", layouts["weights"], {"class_weights": given}),
            ("balanced", layouts["balanced"], {"class_weights": "balanced"}),
            ("own", layouts["own"], own),
            ("gcnii", ("p2p-1", "p2p-2"), model),
            ("clipped", layouts["clipped"], clipped),
            ("wrong-split", ("tensor3d-4",), own),
            ("wrong-weights", ("p2p-3",), {"class_weights": "1,2"}),
            ("wrong-metric", ("p2p-3",), {"monitor": "val_acuracy", "patience": 1}),
            ("wrong-loss", ("p2p-3",), {"loss": "support.own_functions:total"}),
            ("wrong-constant", ("p2p-3",), {"loss": "support.own_functions:constant"}),
            ("wrong-name", ("p2p-3",), {"loss": "support.own_functions:missing"}),
            ("early", layouts["early"], {"lr": 0.0, "patience": 2, "monitor": "loss"}),
        ]
        self.configs = [
            self.config(
                f"{case}-{layout}", save_embeddings=case in {"weights", "own"}, **{**LAYOUTS[layout], **options}
            )
            for case, layouts, options in cases
            for layout in layouts
        ]
        self.configs.append(self.config("start", epochs=1, lr=0.0))
        self.configs += self._course()

    def _course(self) -> list[TrainConfig]:
        """A run whose metrics decide about everything, whole and in two halves."""
        options: dict[str, Any] = {"schedule": "plateau", "plateau_epochs": 0, "lr_factor": 0.5, "warmup_epochs": 2}
        options |= {"lr": 0.2, "eval_every": 1, "keep_best": "val_loss", "monitor": "val_loss", "clip_norm": 1.0}
        options |= {"save_embeddings": False, "norm": "batch", "dropout": 0.3, "epochs": 10, "checkpoint_every": 3}
        halves = self.config("halves-p2p-3", **{**LAYOUTS["p2p-3"], **options, "epochs": 5})
        whole = [self.config(f"course-{layout}", **{**LAYOUTS[layout], **options}) for layout in ("p2p-1", "p2p-3")]
        return [*whole, halves, halves.with_options(epochs=10)]

    def _store(self, folder: Path) -> Dataset:
        rng = np.random.default_rng(5)
        self.label = rng.integers(-1, 3, N).astype(np.float32)
        self.split[0], self.label[0] = 1, 2
        return super()._store(folder)


class Job:
    """All runs of all tasks."""

    def __init__(self, folder: Path, layouts: Layouts) -> None:
        catalog, self.layouts = Catalog(folder / "catalog"), layouts
        tasks = [kind(folder, catalog, layouts) for kind in (Task, Regression, Classes)]
        self.multilabel, self.regression, self.classes = tasks
        contents = [config.to_json() for task in tasks for config in task.configs]
        again = [content for content in contents if content["run"].startswith("early-")]
        where = {"catalog": str(catalog.root), "dataset": "classes", "run": "course-p2p-3"}
        predictions = [where | {"ranks": ranks, "checkpoint": which} for ranks, which in ((3, "last"), (1, "best"))]
        found = iter(run_program(4, "train_all", folder, [*contents, *again, *predictions]))
        for task in tasks:
            # A resumed run comes last, so its result replaces that of its first half.
            task.results = {str(config.run.name): next(found) for config in task.configs}
        self.again = {content["run"]: next(found) for content in again}
        self.predictions = list(found)


@pytest.fixture(scope="module", params=FEW_OR_EVERY)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp("tasks"), EVERY if request.param else FEW)


@pytest.fixture(scope="module")
def task(job: Job) -> Task:
    return job.multilabel


def f1(label: np.ndarray, predicted: np.ndarray) -> float:
    """F1 over the known labels, from its definition by precision and recall."""
    hits = (predicted & (label == 1)).sum()
    if hits == 0:
        return 0.0
    precision, recall = hits / (predicted & (label >= 0)).sum(), hits / (label == 1).sum()
    return float(2 * precision * recall / (precision + recall))


def test_losses_parameters_and_figures_equal_the_dense_reference(task: Task) -> None:
    for layout in task.layouts["multilabel"]:
        _check_multilabel(task, layout)


def _check_multilabel(task: Task, layout: str) -> None:
    dense, result = task.dense(DenseMultilabelGCN), task.results[layout]
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
    dense = task.dense(DenseMultilabelGCN)
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
    objective = TASKS["multilabel"].load()(TASKS["multilabel"], 3)
    labels = objective.read(rows([[0, 1, -1], [-1, -1, -1]]), Place())
    assert objective.known(labels, "train").tolist() == [True, False]
    with pytest.raises(InputError, match="multilabel:"):
        objective.read(rows([[0, 1]]), Place())
    with pytest.raises(InputError, match=r"multilabel:.*2,.*0,"):
        objective.read(rows([[0, 1, 2]]), Place())


def curve_of(task: Task, kind: type[DenseGCN], label: np.ndarray, mask: np.ndarray, **facts: Any) -> list[float]:
    """Losses of a dense reference."""
    dense = task.dense(kind)
    for name, value in facts.items():
        setattr(dense, name, value)
    return train_dense(dense, task.feature.astype(float), label, mask, EPOCHS, 0.05, "adam")


def test_a_regression_equals_the_dense_reference(job: Job) -> None:
    for layout in job.layouts["regression"]:
        _check_regression(job.regression, layout)


def _check_regression(task: Task, layout: str) -> None:
    assert isinstance(task, Regression)
    losses = curve_of(task, DenseRegression, task.target.astype(float), task.split == 1)
    result = task.results[layout]
    assert_close(result["loss"], losses, steps=EPOCHS * 3)
    predicted = Run(task.dataset.run_path(layout)).predictions().target()
    assert predicted.shape == (N, 2)
    for name, code in (("train", 1), ("val", 2), ("test", 3)):
        target, found = task.target[task.split == code].astype(float), predicted[task.split == code]
        error = (found - target)[~np.isnan(target)]
        deviation = np.nansum((target - np.nanmean(target, 0)) ** 2, 0)
        assert result[f"{name}_rmse"] == pytest.approx(np.sqrt((error**2).mean()), rel=tolerance())
        assert result[f"{name}_mae"] == pytest.approx(np.abs(error).mean(), rel=tolerance())
        r2 = (1 - np.nansum((found - target) ** 2, 0) / deviation).mean()
        assert result[f"{name}_r2"] == pytest.approx(r2, rel=tolerance(), abs=tolerance())
    assert "test_accuracy" not in result
    assert "per_class" not in result


def by_class(result: dict[str, Any], name: str) -> list[float]:
    """A figure of every class."""
    return [each[name] for each in result["per_class"]]


def labeled(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Classes, and the labeled vertices of the training split."""
    label = task.label.astype(int)
    return label, (task.split == 1) & (label >= 0)


def test_class_weights_weight_the_loss_and_its_norm(job: Job) -> None:
    label, mask = labeled(job.classes)
    losses = curve_of(job.classes, DenseWeighted, label, mask, weights_of_classes=np.array(WEIGHTS))
    for layout in job.layouts["weights"]:
        assert_close(job.classes.results[f"weights-{layout}"]["loss"], losses, steps=EPOCHS * 3, message=layout)


@pytest.mark.parametrize("case", ["given", "balanced-labels"])
def test_weights_of_several_labels_equal_the_dense_reference(task: Task, case: str) -> None:
    mask = task.split == 1
    positive = (task.known[mask] == 1).sum(0)
    weights = np.array(LABEL_WEIGHTS) if case == "given" else positive.sum() / (CLASSES * positive)
    losses = curve_of(task, DenseWeightedLabels, task.known, mask, weights_of_classes=weights)
    for layout in task.layouts[case]:
        assert_close(task.results[f"{case}-{layout}"]["loss"], losses, steps=EPOCHS * 3, message=layout)


def test_balanced_weights_are_inverse_to_the_classes_numbers(job: Job) -> None:
    label, mask = labeled(job.classes)
    # A class without training vertices is in no term, so its weight does not matter.
    weights = mask.sum() / (3 * np.maximum(np.bincount(label[mask], minlength=3), 1))
    losses = curve_of(job.classes, DenseWeighted, label, mask, weights_of_classes=weights)
    for layout in job.layouts["balanced"]:
        assert_close(job.classes.results[f"balanced-{layout}"]["loss"], losses, steps=EPOCHS * 3, message=layout)


def test_a_loss_and_a_metric_of_ones_own_are_means_over_all_ranks(job: Job) -> None:
    for layout in job.layouts["own"]:
        _check_own(job, layout)


def _check_own(job: Job, layout: str) -> None:
    found, usual = job.classes.results[f"own-{layout}"], job.classes.results["weights-p2p-1"]
    assert_close(found["loss"], usual["loss"], steps=EPOCHS * 3)
    score = Run(job.classes.dataset.run_path(f"own-{layout}")).predictions().score()
    label = job.classes.label.astype(int)
    for name, code in (("train", 1), ("val", 2), ("test", 3)):
        rows = np.flatnonzero((job.classes.split == code) & (label >= 0))
        margin = score[rows, label[rows]] - score[rows].mean(1)
        assert found[f"{name}_margin"] == pytest.approx(margin.mean(), rel=tolerance(), abs=tolerance())


def test_a_model_of_ones_own_has_equal_losses_on_any_number_of_ranks(job: Job) -> None:
    two, alone = (job.classes.results[f"gcnii-{layout}"] for layout in ("p2p-2", "p2p-1"))
    assert_close(two["loss"], alone["loss"], steps=EPOCHS * 4)
    for found in (two, alone):
        assert found["loss"][-1] < found["loss"][0]
    assert by_class(two, "support") == by_class(alone, "support")


def test_a_clipped_step_has_the_length_of_the_limit_on_any_layout(job: Job) -> None:
    for layout in job.layouts["clipped"]:
        _check_clipped(job, layout)


def _check_clipped(job: Job, layout: str) -> None:
    before, after = (
        dict(read_checkpoint(job.classes.dataset.run_path(run) / "checkpoint").arrays)
        for run in ("start", f"clipped-{layout}")
    )
    change = sum(((after[name] - before[name]) ** 2).sum() for name in before if name.startswith("parameter/"))
    # As in torch, 1e-6 is added to the length of the gradient.
    (line,) = Run(job.classes.dataset.run_path(f"clipped-{layout}")).metrics()
    expected = 0.5 * 0.02 * line["gradient_norm"] / (line["gradient_norm"] + 1e-6)
    assert np.sqrt(change) == pytest.approx(expected, rel=tolerance(3))
    (alone,) = Run(job.classes.dataset.run_path("clipped-p2p-1")).metrics()
    assert line["gradient_norm"] == pytest.approx(alone["gradient_norm"], rel=tolerance(3))


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("wrong-split-tensor3d-4", "needs whole rows of scores"),
        ("wrong-weights-p2p-3", "2 weights, but the dataset has 3 classes"),
        ("wrong-metric-p2p-3", "monitor 'val_acuracy': .*did you mean val_accuracy"),
        ("wrong-loss-p2p-3", r"expected a number for each of 3 vertices, found shape \(\)"),
        ("wrong-constant-p2p-3", "torch can differentiate"),
        ("wrong-name-p2p-3", "has no missing"),
    ],
)
def test_what_does_not_fit_the_task_is_one_error_on_all_ranks(job: Job, run: str, said: str) -> None:
    result = job.classes.results[run]
    assert result["code"] == InputError.exit_code
    # The message of the program's rank 0; the other ranks raise together with it.
    assert re.search(said, result["error"])
    assert not job.classes.dataset.run_path(run).exists()


def test_class_weights_of_a_regression_are_refused(job: Job) -> None:
    assert "not classes" in job.regression.results["weighted"]["error"]


def test_a_run_ends_early_once_and_for_all(job: Job) -> None:
    for layout in job.layouts["early"]:
        run = f"early-{layout}"
        result = job.classes.results[run]
        # Nothing changes at learning rate 0: the first epoch is the best one, and two more pass.
        assert (result["state"], result["epochs"]) == ("finished", 3)
        assert result["stopped_early"] == {"metric": "loss", "patience": 2, "best_epoch": 1}
        assert job.again[run] == result


def test_confusion_and_scores_by_class_are_those_of_the_predictions(job: Job) -> None:
    label = job.classes.label.astype(int)
    rows = (job.classes.split == 3) & (label >= 0)
    for layout in job.layouts["weights"]:
        result = job.classes.results[f"weights-{layout}"]
        predicted = Run(job.classes.dataset.run_path(f"weights-{layout}")).predictions().label()
        confusion = np.zeros((3, 3), int)
        np.add.at(confusion, (label[rows], predicted[rows]), 1)
        assert result["confusion"] == confusion.tolist()
        hits = np.diag(confusion)
        assert by_class(result, "class") == [0, 1, 2]
        assert by_class(result, "support") == confusion.sum(1).tolist()
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(by_class(result, "recall"), np.nan_to_num(hits / confusion.sum(1)))
            np.testing.assert_allclose(by_class(result, "precision"), np.nan_to_num(hits / confusion.sum(0)))
        f1 = 2 * hits / (confusion.sum(0) + confusion.sum(1))
        np.testing.assert_allclose(by_class(result, "f1"), f1)
        assert result["feature_norm"] == "none"
    # By class, the F1 scores of a multi-label task average to its macro F1.
    for layout in job.layouts["multilabel"]:
        result = job.multilabel.results[layout]
        assert np.mean(by_class(result, "f1")) == pytest.approx(result["test_macro_f1"], rel=tolerance())


def _checkpoints(task: Task, run: str) -> list[dict[str, np.ndarray]]:
    folders = (Run(task.dataset.run_path(run)).checkpoints, Run(task.dataset.run_path(run)).best_checkpoint)
    return [dict(read_checkpoint(folder).arrays) for folder in folders]


def test_a_resumed_course_equals_the_uninterrupted_one_bit_for_bit(job: Job) -> None:
    whole, halves = (Run(job.classes.dataset.run_path(f"{run}-p2p-3")) for run in ("course", "halves"))
    for one, other in zip(_checkpoints(job.classes, whole.name), _checkpoints(job.classes, halves.name), strict=True):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[name], other[name]) for name in one)
    measured = [
        [{k: v for k, v in line.items() if not k.endswith("seconds")} for line in run.metrics()]
        for run in (whole, halves)
    ]
    assert measured[0] == measured[1]
    assert whole.result()["best"] == halves.result()["best"]


def test_a_course_is_the_same_on_any_number_of_ranks(job: Job) -> None:
    one, three = (Run(job.classes.dataset.run_path(f"course-{layout}")) for layout in ("p2p-1", "p2p-3"))
    for name in ("loss", "lr", "val_loss", "gradient_norm"):
        figures = [[line[name] for line in run.metrics()] for run in (one, three)]
        assert_close(figures[1], figures[0], steps=30, bits=ADAM_BITS)
    rates = [line["lr"] for line in one.metrics()]
    # Two epochs of warm-up; later, a rate follows an epoch without improvement by a half.
    assert rates[:3] == [0.1, 0.2, 0.2]
    best, expected = min(line["val_loss"] for line in one.metrics()[:2]), 0.2
    for line in one.metrics()[2:]:
        assert line["lr"] == expected
        # As in torch, less than a ten-thousandth is no improvement.
        improves = line["val_loss"] < best * (1 - 1e-4)
        expected, best = (expected, line["val_loss"]) if improves else (expected / 2, best)
    assert rates[-1] < 0.2


def test_the_best_checkpoint_predicts_and_so_does_the_last_one(job: Job) -> None:
    run = Run(job.classes.dataset.run_path("course-p2p-3"))
    lines, best = run.metrics(), run.result()["best"]
    values = [line["val_loss"] for line in lines]
    assert best == {"metric": "val_loss", "value": min(values), "epoch": int(np.argmin(values)) + 1}
    assert best["epoch"] < len(lines)
    assert [found["epoch"] for found in job.predictions] == [len(lines), best["epoch"]]
    # The second prediction, on one rank, has replaced the first one.
    label, score = job.classes.label.astype(int), run.predictions().score()
    rows = np.flatnonzero((job.classes.split == 2) & (label >= 0))
    shifted = score[rows] - score[rows].max(1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(rows)), label[rows]]
    assert losses.mean() == pytest.approx(best["value"], rel=tolerance(30))
