"""Small training problems: a graph, features, labels, a split, and a partition for any number of ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnloom.pipeline.shards.grid.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset
from support.graphs import random_adjacency, store_graph, store_vertices
from support.partitions import store_partition
from support.shards import store_row_shards


@dataclass(frozen=True)
class Problem:
    """A graph with everything that training needs.

    Attributes:
        crowded: all vertices are on the first two ranks, so the other ranks have none.
        gathered: all training vertices are on the first rank.
        bare: the features are not stored.
    """

    name: str
    adjacency: Any
    symmetric: bool
    feature: np.ndarray
    label: np.ndarray
    split: np.ndarray
    weighted: bool = False
    crowded: bool = False
    gathered: bool = False
    bare: bool = False

    @property
    def training(self) -> np.ndarray:
        """(n,) bool: the labeled vertices of the training split."""
        chosen: np.ndarray = np.logical_and(self.split == 1, self.label >= 0)
        return chosen

    @property
    def stored_feature(self) -> np.ndarray | None:
        """The features to store, if any."""
        return None if self.bare else self.feature

    def part(self, num_parts: int) -> np.ndarray:
        """(n,) rank of every vertex, random."""
        part = np.random.default_rng(7).integers(0, min(2, num_parts) if self.crowded else num_parts, len(self.label))
        return np.where(self.training, 0, part) if self.gathered else part

    def store(self, catalog: Catalog, *parts: int) -> Dataset:
        """Store row shards for each of these numbers of ranks."""
        dataset = catalog.create(self.name)
        self.store_rows(dataset, *parts)
        return dataset

    def store_rows(self, dataset: Dataset, *parts: int) -> None:
        """Store row shards in a dataset for each of these numbers of ranks."""
        for num_parts in parts:
            store_row_shards(
                dataset,
                self.adjacency,
                self.part(num_parts),
                num_parts,
                symmetric=self.symmetric,
                feature=self.stored_feature,
                label=self.label,
                split=self.split,
                num_classes=3,
                weighted=self.weighted,
            )

    def store_grid(self, catalog: Catalog, *permutations: str, grid: tuple[int, int] = (3, 2)) -> Dataset:
        """Store the graph and its grid shards."""
        dataset = catalog.create(self.name)
        graph = store_graph(dataset, self.adjacency, symmetric=self.symmetric, weighted=self.weighted)
        store_vertices(dataset, self.stored_feature, self.label, self.split)
        for permutation in permutations:
            by_part = store_partition(dataset, graph, self.part(3), 3) if permutation == "partition" else None
            options = GridOptions(grid, permutation, seed=5)
            shard_grid(dataset, graph, options, InProcessCluster(), partition=by_part)
        return dataset


def problem(
    name: str, num_vertices: int, nnz: int, *, symmetric: bool, loops: bool = True, seed: int = 0, **options: bool
) -> Problem:
    """A random problem with three classes; some vertices, including training vertices, have no label."""
    rng = np.random.default_rng(seed)
    adjacency = random_adjacency(num_vertices, nnz, seed, symmetric=symmetric, loops=loops)
    if options.get("weighted"):
        # Weights are stored in float32, so the reference rounds them too.
        adjacency.data = rng.uniform(0.1, 2.0, adjacency.nnz).astype(np.float32).astype(np.float64)
    feature = rng.standard_normal((num_vertices, 5)).astype(np.float32)
    label = rng.integers(-1, 3, num_vertices)
    split = rng.integers(0, 4, num_vertices)
    label[0], split[0] = 2, 1
    return Problem(name, adjacency, symmetric, feature, label, split, **options)


def usual_problems() -> list[Problem]:
    """A directed graph, an undirected one, one with fewer vertices than ranks, and one with isolated vertices."""
    return [
        problem("directed", 60, 240, symmetric=False),
        problem("undirected", 61, 150, symmetric=True),
        problem("fewer-vertices-than-ranks", 5, 9, symmetric=False),
        problem("isolated", 50, 40, symmetric=False, loops=False),
    ]
