"""On Cora, SIGN and Correct-and-Smooth have the accuracy of PyTorch Geometric, over ten seeds."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.stage import partition_graph
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.sources.format import open_edges, open_vertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.trainer.config.predict_config import PredictConfig
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from gnnloom.trainer.training.predict import predict
from support.lone import LoneCommunicator
from support.propagated import reference_steps, store_propagated

# Those of PyTorch about products of PyTorch Geometric.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")

SEEDS = range(10)
STEPS, EPOCHS, BATCH, WIDTH = 3, 100, 70, 64
DROPOUT, RATE, DECAY = 0.5, 0.01, 5e-4


@pytest.fixture(scope="module")
def cora(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> Dataset:
    dataset, cluster = Catalog(tmp_path_factory.mktemp("cora")).create("cora"), InProcessCluster()
    folder = [str(shared_data / "cora")]
    graph = ingest_graph(dataset, open_edges("ogb", folder), IngestOptions(undirected=True), cluster)
    ingest_vertices(dataset, open_vertices("ogb", folder), cluster)
    shard_rows(dataset, partition_graph(dataset, graph, PartitionOptions(1, "block"), cluster), cluster)
    values = reference_steps(adjacency(dataset), dataset.vertices().feature(), STEPS, "symmetric")
    store_propagated(dataset, graph.artifact.key, values)
    return dataset


def adjacency(dataset: Dataset) -> scipy.sparse.csr_array:
    """The stored edges, self loops among them."""
    blocks = [
        scipy.sparse.csr_array(
            (np.ones(len(block.indices)), block.indices, block.indptr), shape=(block.num_rows, block.num_columns)
        )
        for block in dataset.graph().blocks()
    ]
    return scipy.sparse.csr_array(scipy.sparse.vstack(blocks))


class Peer(torch.nn.Module):
    """The network of PyTorch Geometric's examples/sign.py; with the features alone, a perceptron."""

    def __init__(self, num_features: int, num_classes: int, num_inputs: int) -> None:
        super().__init__()
        self.inner = torch.nn.ModuleList(torch.nn.Linear(num_features, WIDTH) for _ in range(num_inputs))
        self.outer = torch.nn.Linear(num_inputs * WIDTH, num_classes)

    def forward(self, inputs: list[Tensor]) -> Tensor:
        def dropped(rows: Tensor) -> Tensor:
            return torch.nn.functional.dropout(rows, DROPOUT, self.training)

        hidden = [torch.relu(layer(each)) for layer, each in zip(self.inner, inputs, strict=True)]
        scores: Tensor = self.outer(dropped(torch.cat(hidden, 1)))
        return scores


class Theirs:
    """Cora as PyTorch Geometric has it: scaled features, and what its transform propagates over the same edges."""

    def __init__(self, dataset: Dataset) -> None:
        data, transforms = (pytest.importorskip(f"torch_geometric.{name}") for name in ("data", "transforms"))
        edges, vertices = adjacency(dataset).tocoo(), dataset.vertices()
        self.edges = torch.from_numpy(np.stack([edges.col, edges.row]).astype(np.int64))
        given = data.Data(torch.tensor(vertices.feature()).float(), self.edges)
        given = transforms.Compose([transforms.NormalizeFeatures(), transforms.SIGN(STEPS)])(given)
        self.inputs = [given.x, *(given[f"x{step}"] for step in range(1, STEPS + 1))]
        self.label, self.split = (
            torch.from_numpy(each.astype(np.int64)) for each in (vertices.label(), vertices.split())
        )
        self.num_classes = vertices.num_classes

    def scores(self, seed: int, inputs: list[Tensor]) -> Tensor:
        """The trained network's scores of all vertices."""
        torch.manual_seed(seed)
        model = Peer(inputs[0].shape[1], self.num_classes, len(inputs))
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE, weight_decay=DECAY)
        training = torch.nonzero(self.split == 1).squeeze(1)
        for _ in range(EPOCHS):
            for rows in torch.split(training[torch.randperm(len(training))], BATCH):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model([each[rows] for each in inputs]), self.label[rows])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        with torch.no_grad():
            found: Tensor = model.eval()(inputs)
            return found

    def accuracy(self, scores: Tensor) -> float:
        chosen = self.split == 3
        return float((scores.argmax(1) == self.label)[chosen].double().mean())

    def smoothed(self, scores: Tensor) -> Tensor:
        mask = self.split == 1
        model = pytest.importorskip("torch_geometric.nn").CorrectAndSmooth(50, 1.0, 50, 0.8)
        found: Tensor = model(scores.softmax(1), self.label[mask], mask, self.edges)
        return found


def config(dataset: Dataset, model: str, seed: int, **options: Any) -> TrainConfig:
    return TrainConfig.of(
        catalog=str(dataset.path.parent),
        dataset=dataset.name,
        mode="rows",
        model=model,
        seed=seed,
        epochs=EPOCHS,
        batch_size=BATCH,
        dropout=DROPOUT,
        input_dropout=False,
        lr=RATE,
        weight_decay=DECAY,
        eval_every=0,
        threads=1,
        **options,
    )


def compare(what: str, ours: list[float], theirs: list[float]) -> None:
    """Print both means and the difference, and allow a point between them."""
    means = statistics.mean(ours), statistics.mean(theirs)
    spread = statistics.stdev(ours), statistics.stdev(theirs)
    sys.stdout.write(
        f"\n{what}: gnnloom {means[0]:.4f} +- {spread[0]:.4f}, PyG {means[1]:.4f} +- {spread[1]:.4f}, difference"
        f" {means[0] - means[1]:+.4f}\n"
    )
    assert abs(means[0] - means[1]) <= 0.01


@pytest.mark.long
def test_sign_is_as_accurate_as_that_of_pyg(cora: Dataset) -> None:
    theirs = Theirs(cora)
    options = {"hidden": ((STEPS + 1) * WIDTH,)}
    ours = [train(LoneCommunicator(), config(cora, "sign", seed, **options))["test_accuracy"] for seed in SEEDS]
    compare("SIGN", ours, [theirs.accuracy(theirs.scores(seed, theirs.inputs)) for seed in SEEDS])


@pytest.mark.long
def test_corrected_and_smoothed_perceptrons_are_as_accurate_as_those_of_pyg(cora: Dataset) -> None:
    theirs, before, after = Theirs(cora), list[float](), list[float]()
    for seed in SEEDS:
        given = config(cora, "mlp", seed, hidden=(WIDTH,), steps=(0,))
        train(LoneCommunicator(), given)
        found = predict(LoneCommunicator(), PredictConfig.of_training(given, shards=None, smooth="correct"))
        before.append(found["test_accuracy"])
        after.append(found["smoothed_test_accuracy"])
    scores = [theirs.scores(seed, theirs.inputs[:1]) for seed in SEEDS]
    compare("MLP", before, [theirs.accuracy(each) for each in scores])
    compare("MLP, Correct-and-Smooth", after, [theirs.accuracy(theirs.smoothed(each)) for each in scores])
