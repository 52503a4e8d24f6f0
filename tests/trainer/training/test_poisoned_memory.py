"""Losses do not depend on what memory held before, where buffers are reused and products are sliced over threads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.sources.format import open_vertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.runs.checkpoint import read_checkpoint
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.place.workspace import SMALL
from gnnloom.trainer.training.loop import train
from support.graphs import store_graph
from support.lone import LoneCommunicator
from support.mpi import run_program
from support.partitions import store_partition
from support.poison import poisoned_memory
from support.problems import Problem, problem
from support.sampled import store_for_sampling
from support.tolerance import assert_close

#: The settings together use every model, algorithm, mode, normalization and precision. ``grid`` is that of two ranks.
SETTINGS: dict[str, dict[str, Any]] = {
    "gcn": {"dataset": "plain", "norm": "layer", "dropout": 0.3, "eval_every": 1},
    "sage": {"dataset": "grid", "model": "sage", "algorithm": "broadcast", "norm": "batch", "residual": True},
    "replicated": {"dataset": "grid", "algorithm": "replicated", "grid": (1, 2), "bias": False},
    "gat": {"dataset": "directed", "model": "gat", "heads": 2, "dropout": 0.2, "residual": True},
    "gatv2": {"dataset": "directed", "model": "gat", "attention": "v2", "heads": 2, "dropout": 0.2, "residual": True},
    "summa": {"dataset": "grid", "algorithm": "summa", "grid": (1, 2), "unit_embedding": True, "dropout": 0.1},
    "split3d": {
        "dataset": "grid",
        "algorithm": "split3d",
        "grid": (1, 1, 2),
        "product_order": "transform-first",
        "skip_input_gradient": False,
    },
    "tensor3d": {"dataset": "grid", "algorithm": "tensor3d", "grid": (2, 1, 1), "model": "sage", "precision": "bf16"},
    "bf16": {"dataset": "plain", "precision": "bf16", "norm": "layer", "residual": True, "dropout": 0.2},
    "trained features": {"dataset": "weighted", "train_features": True, "clip_norm": 0.5},
    "several labels": {"dataset": "labels", "model": "gin", "bias": False, "keep_best": "val_f1", "eval_every": 1},
    "on disk": {"dataset": "weighted", "adjacency": "disk", "dropout": 0.2, "norm": "batch"},
    "mini-batches": {"dataset": "plain", "mode": "minibatch", "batch_size": 700, "model": "gin", "norm": "layer"},
    "subgraphs": {
        "dataset": "plain",
        "mode": "subgraph",
        "sampler": "edge",
        "presamples": "auto",
        "batch_size": 700,
        "precision": "bf16",
        "norm": "batch",
        "dropout": 0.2,
    },
    "neighbors": {"dataset": "plain", "mode": "neighbor", "fanout": (5, 5, 5), "batch_size": 300, "model": "gat"},
    "learned neighbors": {
        "dataset": "plain",
        "mode": "neighbor",
        "fanout": (5, 5, 5),
        "batch_size": 300,
        "embed": 40,
        "clip_norm": 0.5,
    },
    "learned mini-batches": {"dataset": "plain", "mode": "minibatch", "batch_size": 700, "embed": 40},
    "learned subgraphs": {
        "dataset": "plain",
        "mode": "subgraph",
        "sampler": "edge",
        "batch_size": 700,
        "embed": 40,
        "precision": "bf16",
    },
}


def wide(name: str, num_vertices: int, dim: int, nnz: int, *, symmetric: bool, weighted: bool = False) -> Problem:
    """A random problem with ``dim`` features."""
    given = problem(name, num_vertices, nnz, symmetric=symmetric, weighted=weighted)
    feature = np.random.default_rng(1).standard_normal((num_vertices, dim)).astype(np.float32)
    return replace(given, feature=feature)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    catalog = Catalog(tmp_path_factory.mktemp("poison") / "catalog")
    store_for_sampling(catalog, wide("plain", 1501, 32, 12_000, symmetric=True), 2)
    wide("directed", 1501, 32, 12_000, symmetric=False).store(catalog, 2)
    wide("weighted", 1501, 32, 12_000, symmetric=False, weighted=True).store(catalog, 2)
    store_several_labels(catalog, wide("labels", 1501, 32, 12_000, symmetric=True), tmp_path_factory.mktemp("arrays"))
    wide("grid", 1501, 32, 12_000, symmetric=True).store_grid(catalog, "double", grid=(2, 2))
    return catalog


def store_several_labels(catalog: Catalog, given: Problem, folder: Path) -> None:
    """Store a problem with three labels per vertex."""
    dataset, label = catalog.create(given.name), np.random.default_rng(2).integers(0, 2, (len(given.label), 3))
    arrays = {"feature": given.feature, "label": label.astype(np.float32), "split": given.split.astype(np.uint8)}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    graph = store_graph(dataset, given.adjacency, symmetric=given.symmetric)
    files = {name: str(folder / f"{name}.npy") for name in arrays}
    ingest_vertices(dataset, open_vertices("files", (), files), InProcessCluster())
    shard_rows(dataset, store_partition(dataset, graph, given.part(2), 2), InProcessCluster())


def config(catalog: Catalog, **options: Any) -> TrainConfig:
    fixed: dict[str, Any] = {"hidden": (32, 32), "epochs": 2, "eval_every": 0}
    return TrainConfig.of(catalog=str(catalog.root), **{**fixed, **options})


@pytest.mark.parametrize("count", [8, SMALL])
def test_poisoned_memory_is_not_a_number(count: int) -> None:
    with poisoned_memory():
        place = Place()
        tensor = place.empty((count,), torch.float32)
        assert tensor.isnan().all()
        tensor.fill_(1)
        assert place.like(tensor).isnan().all()
        assert place.empty((count,), torch.bfloat16).isnan().all()
        assert torch.empty(count).isnan().all()
        assert np.isnan(np.empty(count)).all()
    assert not np.isnan(place.zeros((count,), torch.float32).numpy()).any()


@pytest.mark.long
def test_all_settings_have_the_same_bits_in_poisoned_memory(catalog: Catalog, tmp_path: Path) -> None:
    given = [
        config(catalog, run=name.replace(" ", "-"), ranks=2, threads=1 + number % 2, **options).to_json()
        for number, (name, options) in enumerate(SETTINGS.items())
    ]
    found = run_program(2, "poisoned", tmp_path, given)
    different = [name for name, (clean, poisoned) in zip(SETTINGS, found, strict=True) if clean != poisoned]
    assert not different
    assert all(np.isfinite(clean).all() and len(set(clean)) == 2 for clean, _ in found)


def dense_losses(given: Problem, start: dict[str, np.ndarray], lr: float, epochs: int) -> list[float]:
    """The losses of a GCN without hidden tricks, trained by gradient descent in sparse float64 torch."""
    matrix = given.adjacency.tocsr()
    degree = np.asarray((matrix != 0).sum(1)).ravel()
    rows, columns = (torch.tensor(each) for each in matrix.nonzero())
    values = torch.tensor(1 / np.sqrt(degree))
    entries = torch.stack([rows, columns]), values[rows] * values[columns]
    operator = torch.sparse_coo_tensor(*entries, matrix.shape, check_invariants=True)
    parameters = {name: torch.tensor(array).requires_grad_() for name, array in start.items()}
    mask, label = torch.tensor(given.training), torch.tensor(given.label)
    losses = []
    for _ in range(epochs):
        hidden = torch.tensor(given.feature).double()
        for layer in range(3):
            product = torch.sparse.mm(operator, hidden) @ parameters[f"parameter/weights.{layer}"]
            hidden = product + parameters[f"parameter/biases.{layer}"]
            hidden = torch.relu(hidden) if layer < 2 else hidden
        loss = torch.nn.functional.cross_entropy(hidden[mask], label[mask])
        losses.append(float(loss.detach()))
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        with torch.no_grad():
            for parameter, gradient in zip(parameters.values(), gradients, strict=True):
                parameter.sub_(lr * gradient)
    return losses


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Catalog, Problem]:
    catalog = Catalog(tmp_path_factory.mktemp("large") / "catalog")
    # One number of each vertex is more than what a small tensor has.
    given = wide("large", 17_000, 40, 90_000, symmetric=True)
    given.store(catalog, 1)
    return catalog, given


def poisoned_losses(config: TrainConfig) -> list[float]:
    with poisoned_memory() as handed_out:
        losses: list[float] = train(LoneCommunicator(), config)["loss"]
    # Buffers were reused: what was handed out is more than what the epoch holds at a time.
    assert sum(each >= SMALL for each in handed_out) > 20
    return losses


@pytest.mark.slow
def test_a_large_training_in_poisoned_memory_has_the_losses_of_plain_torch(large: tuple[Catalog, Problem]) -> None:
    catalog, given = large
    options: dict[str, Any] = {
        "dataset": "large",
        "threads": 2,
        "precision": "float64",
        "optimizer": "sgd",
        "epochs": 3,
    }
    lr = 2.0
    train(LoneCommunicator(), config(catalog, run="start", lr=0.0, **{**options, "epochs": 1}))
    start = dict(read_checkpoint(catalog["large"].run_path("start") / "checkpoint").arrays)
    start = {name: array for name, array in start.items() if name.startswith("parameter/")}
    found = poisoned_losses(config(catalog, run="poisoned", lr=lr, **options))
    expected = dense_losses(given, start, lr, 3)
    assert_close(found, expected, steps=3 * 64)
    assert expected[0] > expected[1] > expected[2]


@pytest.mark.long
def test_a_large_training_with_all_kernels_has_the_same_bits_in_poisoned_memory(
    large: tuple[Catalog, Problem],
) -> None:
    options: dict[str, Any] = {"dataset": "large", "threads": 2, "model": "sage", "norm": "batch", "dropout": 0.3}
    options |= {"residual": True, "unit_embedding": True, "skip_input_gradient": False}
    clean = train(LoneCommunicator(), config(large[0], run="sage-clean", **options))
    assert poisoned_losses(config(large[0], run="sage-poisoned", **options)) == clean["loss"]
