"""The samplers that gnnloom's are compared with: a straightforward frontier, and PyTorch Geometric's loaders."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]


def choice_frontier(indptr: Array, indices: Array, size: int, frontier: int, rng: np.random.Generator) -> Array:
    """Pop by ``Generator.choice`` over the weights of all vertices in the frontier, once per popped vertex."""
    degree = np.diff(indptr)
    member = rng.integers(0, len(degree), frontier)
    weight = degree[member].astype(np.float64)
    drawn = np.empty(size, np.int64)
    drawn[:frontier] = member
    for count in range(frontier, size):
        position = rng.choice(frontier, p=weight / weight.sum())
        start = indptr[member[position]]
        drawn[count] = indices[start + rng.integers(0, indptr[member[position] + 1] - start)]
        member[position], weight[position] = drawn[count], degree[drawn[count]]
    return np.unique(drawn)


@njit(cache=True)
def _scan(indptr: Array, indices: Array, drawn: Array, frontier: int, number: Array) -> None:
    n = len(indptr) - 1
    member, weight = np.empty(frontier, np.int64), np.empty(frontier, np.float64)
    for position in range(frontier):
        member[position] = drawn[position] = int(number[2 * position] * n)
        weight[position] = indptr[member[position] + 1] - indptr[member[position]]
    for count in range(frontier, len(drawn)):
        target = number[2 * count] * weight.sum()
        position = 0
        while position < frontier - 1 and target >= weight[position]:
            target -= weight[position]
            position += 1
        start, stop = indptr[member[position]], indptr[member[position] + 1]
        vertex = indices[start + int(number[2 * count + 1] * (stop - start))]
        drawn[count] = member[position] = vertex
        weight[position] = indptr[vertex + 1] - indptr[vertex]


def scan_frontier(indptr: Array, indices: Array, size: int, frontier: int, rng: np.random.Generator) -> Array:
    """Pop by a linear scan of the weights, compiled."""
    drawn = np.empty(size, np.int64)
    _scan(indptr, indices, drawn, frontier, rng.random(2 * size))
    return np.unique(drawn)


def why_no_pyg() -> str:
    """What PyTorch Geometric's loaders lack here; empty if nothing."""
    if importlib.util.find_spec("torch_geometric") is None:
        return "torch-geometric is not installed"
    if importlib.util.find_spec("torch_sparse") is None:
        return "torch-sparse is not installed (pip install --no-build-isolation torch-scatter torch-sparse)"
    return ""


def _pyg_data(indptr: Array, indices: Array, feature: Array) -> Any:
    import torch
    from torch_geometric.data.data import Data

    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    edges = torch.from_numpy(np.stack([indices.astype(np.int64), rows]))
    return Data(x=torch.from_numpy(feature), edge_index=edges, num_nodes=len(feature))


def pyg_neighbor(
    indptr: Array, indices: Array, feature: Array, fanouts: list[int], batch_size: int, workers: int
) -> Iterator[Any]:
    """Batches of PyG's NeighborLoader, without end."""
    from torch_geometric.loader.neighbor_loader import NeighborLoader

    data = _pyg_data(indptr, indices, feature)
    loader = NeighborLoader(data, num_neighbors=fanouts, batch_size=batch_size, shuffle=True, num_workers=workers)
    while True:
        yield from loader


def pyg_walks(indptr: Array, indices: Array, feature: Array, roots: int, length: int) -> Iterator[Any]:
    """Subgraphs of PyG's GraphSAINT random walks, without end."""
    from torch_geometric.loader.graph_saint import GraphSAINTRandomWalkSampler

    loader = GraphSAINTRandomWalkSampler(
        _pyg_data(indptr, indices, feature), batch_size=roots, walk_length=length, num_steps=1000
    )
    while True:
        yield from loader
