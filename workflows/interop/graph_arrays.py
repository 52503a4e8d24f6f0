"""Edges and vertex data as NumPy arrays, in the form that PyTorch Geometric and DGL share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage import Dataset, Graph
from gnnloom.storage.format.vertex_arrays import SPLIT

#: Nonzeros above which a graph is not loaded into memory for another library, unless asked for: 200 million edges take
#: 3.2 GB as pairs of int64 ids.
MAX_NONZEROS = 200_000_000


def edge_arrays(graph: Graph, max_nnz: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any] | None]:
    """Load the edges of a graph, ordered by target.

    Returns:
        (edge,) int64 sources, (edge,) int64 targets, and (edge,) weights, None if the graph has none.

    Raises:
        BudgetError: the graph has more than ``max_nnz`` nonzeros.
    """
    # A[i, j] is the edge j -> i: the columns are the sources.
    matrix = graph.to_scipy(max_nnz).tocoo()
    targets, sources = matrix.coords
    return sources.astype(np.int64), targets.astype(np.int64), matrix.data if graph.weighted else None


def vertex_arrays(dataset: Dataset, key: str | None = None) -> dict[str, NDArray[Any]]:
    """Load the vertex data of a dataset; empty if it has none.

    Returns:
        The arrays that the dataset has: ``x`` (vertex, feature) float32; ``y`` (vertex,) int64 with -1 for no label,
        or (vertex, class) float32 of zeros and ones with NaN for unknown labels, or (vertex, target) float32 numbers to
        predict with NaN for unknown ones; ``train_mask``, ``val_mask`` and ``test_mask`` (vertex,) bool; and all others
        by name.
    """
    if key is None and not dataset.artifacts("vertices"):
        return {}
    vertices, found = dataset.vertices(key), {}
    for name in vertices.names:
        array = vertices.array(name).read()
        match name:
            case "label":
                found["y"] = array.astype(np.int64)
            case "multilabel":
                found["y"] = np.where(array < 0, np.float32(np.nan), array).astype(np.float32)
            case "split":
                masks = {"train": "train", "val": "valid", "test": "test"}
                found |= {f"{mask}_mask": array == SPLIT[value] for mask, value in masks.items()}
            case _:
                found[{"feature": "x", "target": "y"}.get(name, name)] = array
    return found
