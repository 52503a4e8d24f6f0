"""Problems whose graph and vertices are stored as well as their shards, as sampled training reads them."""

from __future__ import annotations

from typing import Any

from gnnloom.storage import Catalog
from gnnloom.trainer.config.train_config import TrainConfig
from support.graphs import store_graph, store_vertices
from support.problems import Problem


def store_whole(catalog: Catalog, given: Problem, *parts: int) -> None:
    """Store the graph, the vertices, and row shards for each of these numbers of ranks."""
    dataset = catalog.create(given.name)
    store_graph(dataset, given.adjacency, symmetric=given.symmetric, weighted=given.weighted)
    store_vertices(dataset, given.feature, given.label, given.split)
    given.store(catalog, *parts)


def sampled_config(catalog: Catalog, dataset: str, mode: str, run: str, **options: Any) -> TrainConfig:
    """A training in float64 on one thread, with one hidden layer."""
    fixed: dict[str, Any] = {"hidden": (8,), "epochs": 3, "threads": 1, "dtype": "float64", "batch_size": 20}
    return TrainConfig(catalog=str(catalog.root), dataset=dataset, mode=mode, run=run, **{**fixed, **options})
