"""Datasets as DGL graphs, or as the NumPy arrays that make up one, for which DGL is not needed."""

from __future__ import annotations

from typing import Any

from gnnloom.storage import Dataset
from gnnloom.workflows.interop.graph_arrays import MAX_NONZEROS, edge_arrays, vertex_arrays


def to_dgl(dataset: Dataset, graph: str | None = None, max_nnz: int = MAX_NONZEROS) -> Any:
    """Load a whole dataset into memory as one ``DGLGraph``.

    Args:
        graph: key, to choose between several graphs.

    Returns:
        The graph, with edges in the order of their targets; ``ndata`` and ``edata`` as :func:`to_dgl_description`.

    Raises:
        BudgetError: the graph has more than ``max_nnz`` nonzeros.
    """
    import dgl
    import torch

    pieces = to_dgl_description(dataset, graph, max_nnz)
    ends = tuple(torch.from_numpy(ids) for ids in pieces["edges"])
    built = dgl.graph(ends, num_nodes=pieces["num_nodes"])
    built.ndata.update({name: torch.from_numpy(array) for name, array in pieces["ndata"].items()})
    built.edata.update({name: torch.from_numpy(array) for name, array in pieces["edata"].items()})
    return built


def to_dgl_description(dataset: Dataset, graph: str | None = None, max_nnz: int = MAX_NONZEROS) -> dict[str, Any]:
    """Load the arrays that make up a DGL graph.

    ``dgl.graph(d["edges"], num_nodes=d["num_nodes"])`` builds the graph. Each array of ``d["ndata"]`` and
    ``d["edata"]``, converted to a tensor, goes into the graph's dictionary of the same name.

    Args:
        graph: key, to choose between several graphs.

    Returns:
        ``num_nodes``; ``edges``, two (edge,) int64 arrays of sources and targets, ordered by target; ``ndata`` (see
        :func:`~gnnloom.workflows.interop.graph_arrays.vertex_arrays`); ``edata`` with ``weight`` (edge,) if the graph
        is weighted.

    Raises:
        BudgetError: the graph has more than ``max_nnz`` nonzeros.
    """
    stored = dataset.graph(graph)
    sources, targets, weight = edge_arrays(stored, max_nnz)
    return {
        "num_nodes": stored.num_vertices,
        "edges": (sources, targets),
        "ndata": vertex_arrays(dataset),
        "edata": {} if weight is None else {"weight": weight},
    }
