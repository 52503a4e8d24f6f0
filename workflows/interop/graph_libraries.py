"""Whole datasets for PyTorch Geometric and DGL, which hold graphs in memory."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage import Dataset, Graph, TypedGraph, Vertices
from gnnloom.storage.artifacts.typed.source_ids import SourceIds
from gnnloom.storage.errors import BudgetError
from gnnloom.storage.format.vertex_arrays import LABELS, SPLIT, as_trained, widened
from gnnloom.trainer.loader.choices import EDGE_NAMES

if TYPE_CHECKING:
    from torch_geometric.data.data import Data
    from torch_geometric.data.hetero_data import HeteroData

#: Nonzeros above which a graph is not loaded into memory for another library, unless asked for: 200 million edges take
#: 3.2 GB as pairs of int64 ids.
MAX_NONZEROS = 200_000_000


def to_pyg(dataset: Dataset, graph: str | None = None, max_nnz: int = MAX_NONZEROS) -> Data | HeteroData:
    """Load a whole dataset into memory as one ``Data``, or as ``HeteroData`` if its graph has types.

    Args:
        graph: key, to choose between several graphs.

    Returns:
        For a graph with types, the result of :func:`to_hetero_data`. Otherwise ``edge_index`` (2, edge) int64, sources
        first; ``edge_weight`` (edge,) if the graph is weighted; and the arrays of :func:`vertex_arrays`.

    Raises:
        BudgetError: the graph has more than ``max_nnz`` nonzeros.
    """
    import torch
    from torch_geometric.data.data import Data

    if typed := typed_graph(dataset, graph):
        return to_hetero_data(typed, dataset.vertices_of_types(typed.artifact.key), max_nnz)
    stored = dataset.graph(graph)
    sources, targets, weight = edge_arrays(stored, max_nnz)
    tensors = {name: torch.from_numpy(array) for name, array in vertex_arrays(dataset).items()}
    if weight is not None:
        tensors["edge_weight"] = torch.from_numpy(weight)
    edge_index = torch.from_numpy(np.stack([sources, targets]))
    return Data(edge_index=edge_index, num_nodes=stored.num_vertices, **tensors)


def typed_graph(dataset: Dataset, key: str | None = None) -> TypedGraph | None:
    """The graph with types that a key chooses, or the only graph of a dataset; None if it has no types."""
    # A graph without held-out edges is chosen by its key only.
    infos = dataset.ingested_graphs() if key is None else dataset.artifacts("graph")
    complete = [info for info in infos if info.state == "complete"]
    chosen = [info for info in complete if info.key.startswith(key or "")]
    if not chosen or (key is None and not all(info.is_typed for info in chosen)) or not chosen[0].is_typed:
        return None
    return dataset.typed_graph(key)


def source_ids(dataset: Dataset, graph: str | None, of_type: str | None) -> SourceIds:
    """The vertices of a graph, or of one type of a graph with types, with their ids in the source.

    Raises:
        NotFoundError, InputError: there is no such graph or type, or there are several graphs.
    """
    return dataset.graph(graph) if of_type is None else dataset.typed_graph(graph).ids(of_type)


def to_hetero_data(
    graph: TypedGraph, vertices: Mapping[str, Vertices] = MappingProxyType({}), max_nnz: int = MAX_NONZEROS
) -> HeteroData:
    """Load a graph with types into memory.

    Args:
        vertices: vertex data by type.

    Returns:
        For each type, ``num_nodes`` and the arrays of :func:`vertex_arrays` that it has; for each relation,
        ``edge_index`` (2, edge) int64 with the numbers of vertices within their types, sources first, ordered by
        target; ``edge_weight`` (edge,) float32 if it has weights; ``time`` (edge,) int64 or float64 if it has times;
        ``edge_attr`` (edge, feature) float32 and ``edge_label`` (edge,) int64 if it has such columns.

    Raises:
        BudgetError: the relations have more than ``max_nnz`` edges.
    """
    import torch
    from torch_geometric.data.hetero_data import HeteroData

    if graph.nnz > max_nnz:
        raise BudgetError(f"{graph.artifact.path}: {graph.nnz:,} edges, more than max_nnz={max_nnz:,}")
    data = HeteroData()
    for each in graph.types:
        data[each.name].num_nodes = each.count
        if each.name in vertices:
            arrays = loaded_vertices(vertices[each.name])
            data[each.name].update({name: torch.from_numpy(array) for name, array in arrays.items()})
    for relation in graph.relations:
        blocks = list(relation.edge_blocks())
        ends = [np.concatenate([block[end] for block in blocks]) for end in (0, 1)]
        data[relation.edge_type].edge_index = torch.from_numpy(np.stack(ends))
        for array in relation.edge_columns:
            data[relation.edge_type][EDGE_NAMES[array]] = torch.from_numpy(relation.column(array))
        values = [block[2] for block in blocks if block[2] is not None]
        if values:
            name = "time" if relation.has_times else "edge_weight"
            data[relation.edge_type][name] = torch.from_numpy(np.concatenate(values))
    return data


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


def vertex_arrays(dataset: Dataset) -> dict[str, NDArray[Any]]:
    """Load the vertex data of a dataset; empty if it has none.

    Returns:
        The arrays that the dataset has: ``x`` (vertex, feature) float32; ``y`` (vertex,) int64 with -1 for no label,
        or (vertex, class) float32 of zeros and ones with NaN for unknown labels, or (vertex, target) float32 numbers to
        predict with NaN if unknown; ``train_mask``, ``val_mask`` and ``test_mask`` (vertex,) bool; and all others
        by name.
    """
    return loaded_vertices(dataset.vertices()) if dataset.untyped_vertices() else {}


def loaded_vertices(vertices: Vertices) -> dict[str, NDArray[Any]]:
    """Load vertex data under the names of PyG; see :func:`vertex_arrays`."""
    found = dict[str, NDArray[Any]]()
    for name in vertices.names:
        stored = vertices.array(name).read()
        array = stored.astype(widened(stored.dtype), copy=False)
        match name:
            case "split":
                masks = {"train": "train", "val": "valid", "test": "test"}
                found |= {f"{mask}_mask": array == SPLIT[value] for mask, value in masks.items()}
            case _ if name in LABELS:
                found["y"] = as_trained(name, array)
            case _:
                found[{"feature": "x"}.get(name, name)] = array
    return found


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
        :func:`vertex_arrays`); ``edata`` with ``weight`` (edge,) if the graph is weighted.

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
