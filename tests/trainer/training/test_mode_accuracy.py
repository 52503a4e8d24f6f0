"""Every mode of training reaches the accuracy of the whole graph on Cora, over five seeds."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest

from gnnloom.pipeline.ingest.stage import IngestOptions, ingest_graph
from gnnloom.pipeline.ingest.vertices import ingest_vertices
from gnnloom.pipeline.partition.options import PartitionOptions
from gnnloom.pipeline.partition.stage import partition_graph
from gnnloom.pipeline.shards.rows.row_stage import shard_rows
from gnnloom.pipeline.sources.format import open_edges, open_vertices
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.trainer.config.train_config import TrainConfig
from gnnloom.trainer.training.loop import train
from support.lone import LoneCommunicator

#: Two steps per epoch in place of one, so half the epochs.
MODES: dict[str, dict[str, Any]] = {
    "frontier": {"mode": "subgraph", "batch_size": 1400, "epochs": 100},
    "edge": {"mode": "subgraph", "sampler": "edge", "batch_size": 1400, "epochs": 100},
    "minibatch": {"mode": "minibatch", "batch_size": 1354, "epochs": 100},
    "neighbor": {"mode": "neighbor", "fanout": (10, 10), "batch_size": 70, "epochs": 100},
}


@pytest.fixture(scope="module")
def cora(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> Dataset:
    dataset, cluster = Catalog(tmp_path_factory.mktemp("cora")).create("cora"), InProcessCluster()
    folder = [str(shared_data / "cora")]
    graph = ingest_graph(dataset, open_edges("ogb", folder), IngestOptions(undirected=True), cluster)
    ingest_vertices(dataset, open_vertices("ogb", folder), cluster)
    shard_rows(dataset, partition_graph(dataset, graph, PartitionOptions(1, "block"), cluster), cluster)
    return dataset


def accuracies(dataset: Dataset, **options: Any) -> list[float]:
    """Test accuracies with the settings of Kipf and Welling (ICLR 2017), for five seeds."""
    usual: dict[str, Any] = {"hidden": (16,), "dropout": 0.5, "weight_decay": 5e-4, "eval_every": 0, "threads": 1}
    configs = [
        TrainConfig.of(catalog=str(dataset.path.parent), dataset=dataset.name, seed=seed, **{**usual, **options})
        for seed in range(5)
    ]
    return [train(LoneCommunicator(), config)["test_accuracy"] for config in configs]


@pytest.mark.long
@pytest.mark.parametrize("name", MODES)
def test_a_mode_is_within_noise_of_the_whole_graph(cora: Dataset, name: str) -> None:
    whole, sampled = accuracies(cora, epochs=200), accuracies(cora, **MODES[name])
    # Three standard errors of the difference of two means over five seeds; the spread over seeds is at least 0.006.
    spread = max(0.006, statistics.stdev(whole), statistics.stdev(sampled))
    assert statistics.mean(sampled) >= statistics.mean(whole) - 3 * spread * (2 / 5) ** 0.5
    assert statistics.mean(sampled) >= 0.79
