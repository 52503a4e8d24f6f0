"""Sampled training of every task: with batches of all vertices, it is training on the whole graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.stage import partition_graph
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.sources.format import open_vertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog
from gnnloom.storage.format.vertex_arrays import SPLIT
from gnnloom.trainer.comm.process_grid import ProcessGrid
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.data.vertex_data import Labels
from gnnloom.trainer.layout.layout import Layout
from gnnloom.trainer.place.place import Place
from gnnloom.trainer.tasks.objectives.vertex_objective import VertexObjective
from gnnloom.trainer.tasks.registry import TASKS as DESCRIPTORS
from gnnloom.trainer.training.loop import train
from support.edge_files import write_edges
from support.lone import LoneCommunicator
from support.own_functions import cross_entropy
from support.tolerance import ADAM_BITS, assert_close

N, EPOCHS = 40, 4
TASKS = ("label", "multilabel", "target")
OWN_LOSS = {"loss": "support.own_functions:cross_entropy"}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    folder = tmp_path_factory.mktemp("tasks")
    catalog, cluster, rng = Catalog(folder / "catalog"), InProcessCluster(), np.random.default_rng(3)
    known = rng.random((N, 3)) < 0.8
    arrays: dict[str, np.ndarray] = {
        "feature": rng.standard_normal((N, 6)).astype(np.float32),
        "split": rng.integers(0, 4, N).astype(np.uint8),
        "label": rng.integers(0, 3, N),
        "multilabel": np.where(known, rng.integers(0, 2, (N, 3)), np.nan).astype(np.float32),
        "target": np.where(known, rng.standard_normal((N, 3)), np.nan).astype(np.float32),
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    edges = write_edges(folder / "e", *rng.integers(0, N, (2, 150)), vertices=N)
    for task in TASKS:
        dataset = catalog.create(task)
        graph = ingest_graph(dataset, edges, IngestOptions(), cluster)
        kind = "target" if task == "target" else "label"
        files = {name: str(folder / f"{name}.npy") for name in ("feature", "split")}
        ingest_vertices(dataset, open_vertices("files", (), {**files, kind: str(folder / f"{task}.npy")}), cluster)
        shard_rows(dataset, partition_graph(dataset, graph, PartitionOptions(1, "block"), cluster), cluster)
    return catalog


def losses(catalog: Catalog, dataset: str, **options: Any) -> list[float]:
    config = TrainConfig.of(
        catalog=str(catalog.root),
        dataset=dataset,
        hidden=(7,),
        epochs=EPOCHS,
        precision="float64",
        threads=1,
        **options,
    )
    found: list[float] = train(LoneCommunicator(), config)["loss"]
    return found


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("label", {}),
        ("label", {"class_weights": "balanced", "feature_norm": "row"}),
        ("label", OWN_LOSS),
        ("multilabel", {}),
        ("multilabel", {"class_weights": "0.5,2,1"}),
        ("target", {}),
    ],
)
def test_one_batch_of_all_vertices_is_the_whole_graph(catalog: Catalog, task: str, options: dict[str, Any]) -> None:
    expected = losses(catalog, task, **options)
    sampled: dict[str, dict[str, Any]] = {
        "minibatch": {"mode": "minibatch"},
        "subgraph": {"mode": "subgraph", "sampler": "vertex"},
        # Batches of all vertices have every vertex and edge with weight 1.
        "presamples": {"mode": "subgraph", "sampler": "vertex", "presamples": 3},
    }
    for name, given in sampled.items():
        found = losses(catalog, task, batch_size=N, **given, **options)
        assert_close(found, expected, steps=EPOCHS * 4, bits=ADAM_BITS, message=name)


def test_weights_of_vertices_multiply_their_terms() -> None:
    """Every kind of loss is linear in the weights: a vertex of weight 2 counts as two."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    weights = torch.tensor([1.0, 2.0, 1.0, 3.0, 1.0, 1.0], dtype=torch.float64)
    repeated = torch.tensor([0, 1, 1, 2, 3, 3, 3, 4, 5])
    split = torch.full((6,), SPLIT["train"], dtype=torch.uint8)
    targets = torch.randn(6, 3, generator=generator)
    targets[2, 1] = torch.nan
    classes = torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)
    cases = [
        ("class", torch.tensor([0, 1, 2, 1, 0, 2]), classes, None),
        ("multilabel", torch.tensor([[1, 0, -1]] * 6, dtype=torch.int8), classes, None),
        ("number", targets, None, None),
        ("class", torch.tensor([0, 1, 2, 1, 0, 2]), classes, cross_entropy),
    ]
    for name, label, class_weights, own in cases:
        objective: VertexObjective = DESCRIPTORS[name].load()(DESCRIPTORS[name], 3, class_weights, own)
        found = []
        for rows, given in ((torch.arange(6), weights), (repeated, None)):
            layout = Layout(ProcessGrid(LoneCommunicator(), {"row": 1}, Place()), rows.numpy(), ("row",))
            loss = objective.loss(layout, Labels(label, split).take(rows), row_weights=given)
            loss.divisor = 4.0
            entered = scores[rows].clone().requires_grad_()
            value = loss(entered)
            value.backward()  # type: ignore[no-untyped-call]
            assert entered.grad is not None
            summed = torch.zeros(6, 3, dtype=torch.float64).index_add_(0, rows, entered.grad)
            found.append((float(value.detach()), summed.numpy()))
        assert_close(found[0][0], found[1][0])
        assert_close(found[0][1], found[1][1])
