"""Datasets as other libraries take them: PyTorch Geometric's ``Data``, and the pieces of a DGL graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage import Dataset
from gnnloom.storage.artifacts.vertices import SPLIT

if TYPE_CHECKING:
    from torch_geometric.data.data import Data

_MOST_NONZEROS = 200_000_000


def vertex_data(dataset: Dataset, key: str | None = None) -> dict[str, NDArray[Any]]:
    """What is known of the vertices, by the names that both libraries use; empty where the dataset has none.

    Returns:
        ``x`` (vertex, feature) float32, ``y`` (vertex,) int64 with -1 for no label, or (vertex, class)
        float32 of zeros and ones with NaN where a label is not known, and ``train_mask``, ``val_mask``
        and ``test_mask`` (vertex,) bool; those that the dataset has.
    """
    if key is None and not dataset.artifacts("vertices"):
        return {}
    vertices, found = dataset.vertices(key), {}
    if vertices.has_feature:
        found["x"] = vertices.feature()
    if vertices.has_label:
        found["y"] = vertices.label().astype(np.int64)
    if vertices.has_multilabel:
        known = vertices.multilabel()
        found["y"] = np.where(known < 0, np.float32(np.nan), known).astype(np.float32)
    if vertices.has_split:
        split = vertices.split()
        for name, value in (("train", "train"), ("val", "valid"), ("test", "test")):
            found[f"{name}_mask"] = split == SPLIT[value]
    return found


def to_dgl_description(dataset: Dataset, graph: str | None = None, max_nnz: int = _MOST_NONZEROS) -> dict[str, Any]:
    """The pieces of a DGL graph as NumPy arrays, without DGL.

    ``dgl.graph(d["edges"], num_nodes=d["num_nodes"])`` builds it; then each of ``d["ndata"]`` and ``d["edata"]``, made
    a tensor, goes into the graph's dictionary of that name.

    Returns:
        ``num_nodes``, ``edges`` (two (edge,) int64 arrays: sources and targets, by target), ``ndata``
        (:func:`vertex_data`), and ``edata`` (``weight`` (edge,) where the graph has weights).

    Raises:
        BudgetError: the graph has more than ``max_nnz`` nonzeros.
    """
    stored = dataset.graph(graph)
    # A[i, j] is the edge j -> i: the columns are the sources.
    matrix = stored.to_scipy(max_nnz).tocoo()
    targets, sources = matrix.coords
    return {
        "num_nodes": stored.num_vertices,
        "edges": (sources.astype(np.int64), targets.astype(np.int64)),
        "ndata": vertex_data(dataset),
        "edata": {"weight": matrix.data} if stored.weighted else {},
    }


def to_pyg(dataset: Dataset, graph: str | None = None, max_nnz: int = _MOST_NONZEROS) -> Data:
    """A dataset as PyTorch Geometric's ``Data`` (extra ``interop``), all in memory.

    Returns:
        ``edge_index`` (2, edge) int64 with the sources first, ``edge_weight`` where the graph has weights, and
        :func:`vertex_data`.

    Raises:
        BudgetError: the graph has more than ``max_nnz`` nonzeros.
    """
    import torch
    from torch_geometric.data.data import Data

    pieces = to_dgl_description(dataset, graph, max_nnz)
    tensors = {name: torch.from_numpy(array) for name, array in pieces["ndata"].items()}
    if pieces["edata"]:
        tensors["edge_weight"] = torch.from_numpy(pieces["edata"]["weight"])
    edge_index = torch.from_numpy(np.stack(pieces["edges"]))
    return Data(edge_index=edge_index, num_nodes=pieces["num_nodes"], **tensors)
