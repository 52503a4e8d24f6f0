"""Datasets as PyTorch Geometric's ``Data`` (extra ``interop``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gnnloom.storage import Dataset
from gnnloom.workflows.interop.graph_arrays import MAX_NONZEROS, edge_arrays, vertex_arrays

if TYPE_CHECKING:
    from torch_geometric.data.data import Data


def to_pyg(dataset: Dataset, graph: str | None = None, max_nnz: int = MAX_NONZEROS) -> Data:
    """Load a whole dataset into memory as one ``Data``.

    Args:
        graph: key, to choose between several graphs.

    Returns:
        ``edge_index`` (2, edge) int64, sources first; ``edge_weight`` (edge,) if the graph is weighted; and the arrays
        of :func:`~gnnloom.workflows.interop.graph_arrays.vertex_arrays`.

    Raises:
        BudgetError: the graph has more than ``max_nnz`` nonzeros.
    """
    import torch
    from torch_geometric.data.data import Data

    stored = dataset.graph(graph)
    sources, targets, weight = edge_arrays(stored, max_nnz)
    tensors = {name: torch.from_numpy(array) for name, array in vertex_arrays(dataset).items()}
    if weight is not None:
        tensors["edge_weight"] = torch.from_numpy(weight)
    edge_index = torch.from_numpy(np.stack([sources, targets]))
    return Data(edge_index=edge_index, num_nodes=stored.num_vertices, **tensors)
