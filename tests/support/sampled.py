"""Datasets for sampled training, made by the real stages: a graph, vertex data, a partition and its row shards."""

from __future__ import annotations

from typing import Any

from gnnloom.pipeline.shards.row_stage import shard_rows
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.trainer.config.train_config import TrainConfig
from support.graphs import store_graph, store_vertices
from support.partitions import store_partition
from support.problems import Problem


def store_for_sampling(catalog: Catalog, given: Problem, *parts: int, shards: bool = True) -> Dataset:
    """Store a problem with partitions, and row shards of them if asked for, for each of these numbers of ranks."""
    dataset = catalog.create(given.name)
    graph = store_graph(dataset, given.adjacency, symmetric=given.symmetric, weighted=given.weighted)
    store_vertices(dataset, given.feature, given.label, given.split)
    for num_parts in parts:
        partition = store_partition(dataset, graph, given.part(num_parts), num_parts)
        if shards:
            shard_rows(dataset, partition, InProcessCluster())
    return dataset


def sampled_config(catalog: Catalog, name: str, ranks: int, run: str, **options: Any) -> TrainConfig:
    """Neighbor mode in float64, without evaluations; ``options`` override."""
    fixed: dict[str, Any] = {
        "mode": "neighbor",
        "hidden": (9, 7),
        "epochs": 3,
        "lr": 0.02,
        "precision": "float64",
        "seed": 3,
        "eval_every": 0,
        "threads": 1,
    }
    return TrainConfig(catalog=str(catalog.root), dataset=name, ranks=ranks, run=run, **{**fixed, **options})
