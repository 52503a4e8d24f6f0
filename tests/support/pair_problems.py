"""Small graphs with links, stored for training tasks on pairs with every algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.pipeline.shards.grid.grid_stage import GridOptions, shard_grid
from gnnloom.pipeline.tasks.cluster import InProcessCluster
from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.artifacts.links import CLASS, NUMBER, Links
from gnnloom.storage.format.schema import LINK_SPLITS
from gnnloom.trainer.config.train_config import TrainConfig
from support.links import pairs_of, store_links
from support.partitions import store_partition
from support.problems import Problem
from support.sampled import store_for_sampling

NUM_CLASSES = 3
#: The arrays of pairs.
PAIR_PATHS = [f"{split}/pair" for split in LINK_SPLITS]
#: Pairs that are no edges, for training and for each of the other splits.
_NO_EDGES = 6
_HELD_OUT = 25
#: Pairs that are drawn to find those, all of a tiny graph.
_DRAWN = 5000


def edges_of(given: Problem) -> NDArray[np.int64]:
    """(num_edges, 2) int64 source and target of all edges but loops, in a random order."""
    return np.random.default_rng(3).permutation(pairs_of(given.adjacency, symmetric=given.symmetric))


def link_arrays(given: Problem, kind: str = "pair", share: float = 0.75) -> dict[str, NDArray[Any]]:
    """The arrays of links: a share of the edges and some other pairs to train on; other pairs to test on."""
    rng, edges = np.random.default_rng(4), edges_of(given)
    # Only pages with entries are touched, however large the array is.
    dense = given.adjacency.toarray()
    n = len(dense)
    # Entry (v, u) is the pair (u, v); those of an undirected graph have u < v.
    target, source = np.divmod(rng.choice(n * n, min(n * n, _DRAWN), replace=False), n)
    is_free = (dense[target, source] == 0) & (source < target if given.symmetric else source != target)
    others = np.stack([source, target], axis=1)[is_free]
    parts = np.split(others, np.cumsum([_NO_EDGES if share < 1 else 0, _HELD_OUT, _HELD_OUT]))
    train = rng.permutation(np.concatenate([edges[: round(share * len(edges))], parts[0]]))
    pairs = {"train": train, "valid": parts[1], "test": parts[2]}
    arrays: dict[str, NDArray[Any]] = {f"{split}/pair": pair for split, pair in pairs.items()}
    weight = dense[train[:, 1], train[:, 0]]
    arrays["train/weight"] = weight if given.weighted else weight.astype(np.uint8)
    for split, pair in pairs.items():
        if kind == CLASS:
            arrays[f"{split}/value"] = rng.integers(0, NUM_CLASSES, len(pair))
        if kind == NUMBER:
            arrays[f"{split}/value"] = rng.standard_normal(len(pair)).astype(np.float32)
    return arrays


def store_pairs(
    catalog: Catalog,
    given: Problem,
    *parts: int,
    kind: str = "pair",
    share: float = 0.75,
    grid: tuple[int, int] | None = None,
    more: Mapping[str, NDArray[Any]] | None = None,
) -> tuple[Dataset, Links]:
    """Store a problem with links that hold out none of its edges.

    Args:
        parts: numbers of ranks that get row shards.
        kind: of the values of the pairs.
        share: of the edges that are pairs to train on.
        grid: rows and columns of the grid shards, if any, in the double permutation and by part.
        more: further arrays of the links.
    """
    dataset = store_for_sampling(catalog, given, *parts)
    if grid is not None:
        graph = dataset.graph()
        shard_grid(dataset, graph, GridOptions(grid, "double", seed=5), InProcessCluster())
        by_part = store_partition(dataset, graph, given.part(3), 3)
        shard_grid(dataset, graph, GridOptions(grid, "partition"), InProcessCluster(), partition=by_part)
    return dataset, store_pair_links(dataset, given, kind, share, more)


def store_pair_links(
    dataset: Dataset,
    given: Problem,
    kind: str = "pair",
    share: float = 0.75,
    more: Mapping[str, NDArray[Any]] | None = None,
) -> Links:
    """Store links of one more kind for the graph of a dataset that :func:`store_pairs` has made."""
    arrays = {**link_arrays(given, kind, share), **(more or {})}
    facts: dict[str, Any] = {"kind": kind, "num_classes": NUM_CLASSES if kind == CLASS else 0, "held_out_entries": 0}
    dense = given.adjacency.toarray()
    facts["edges"] = {path: int((dense[arrays[path][:, 1], arrays[path][:, 0]] != 0).sum()) for path in PAIR_PATHS}
    return store_links(dataset, dataset.graph(), arrays, **facts)


def pair_config(catalog: Catalog, dataset: str, run: str, **options: Any) -> TrainConfig:
    """A training in float64 on one thread, with one hidden layer; ``options`` override."""
    fixed: dict[str, Any] = {
        "hidden": (8,),
        "output_dim": 6,
        "epochs": 2,
        "lr": 0.02,
        "precision": "float64",
        "seed": 3,
        "eval_every": 0,
        "threads": 1,
        "task": "link",
    }
    return TrainConfig.of(catalog=str(catalog.root), dataset=dataset, run=run, **{**fixed, **options})
