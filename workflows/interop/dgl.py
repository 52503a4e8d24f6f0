"""Datasets for DGL, as NumPy arrays: DGL itself is not needed."""

from __future__ import annotations

from typing import Any

from gnnloom.storage import Dataset
from gnnloom.workflows.interop.graph_arrays import MAX_NONZEROS, edge_arrays, vertex_arrays


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
