"""Datasets and configurations for sampled training, which reads the graph and the vertex data as well as shards."""

from __future__ import annotations

from typing import Any

from gnnloom.pipeline.shards.rows.row_stage import shard_rows
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
    store_vertices(dataset, given.stored_feature, given.label, given.split)
    for num_parts in parts:
        partition = store_partition(dataset, graph, given.part(num_parts), num_parts)
        if shards:
            shard_rows(dataset, partition, InProcessCluster())
    return dataset


def store_whole(catalog: Catalog, given: Problem, *parts: int) -> None:
    """Store the graph and the vertices of a problem, and row shards that no stage made: quicker, without partitions."""
    dataset = catalog.create(given.name)
    store_graph(dataset, given.adjacency, symmetric=given.symmetric, weighted=given.weighted)
    store_vertices(dataset, given.stored_feature, given.label, given.split)
    given.store(catalog, *parts)


def sampled_config(catalog: Catalog, dataset: str, mode: str, run: str, **options: Any) -> TrainConfig:
    """A training in float64 on one thread, with one hidden layer; ``options`` override."""
    fixed: dict[str, Any] = {"hidden": (8,), "epochs": 3, "threads": 1, "precision": "float64", "batch_size": 20}
    return TrainConfig.of(catalog=str(catalog.root), dataset=dataset, mode=mode, run=run, **{**fixed, **options})
