"""PyG and DGL get the same graph: edges from source to target, features, labels and masks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnnloom.storage import Catalog, Dataset
from gnnloom.storage.errors import BudgetError
from gnnloom.workflows.interop.graph_libraries import to_dgl_description, to_pyg
from support.graphs import random_adjacency, store_graph, store_vertices


def store(catalog: Catalog, *, weighted: bool) -> tuple[Dataset, np.ndarray]:
    adjacency = random_adjacency(20, 60, 1, symmetric=False)
    adjacency.data = np.arange(1, adjacency.nnz + 1, dtype=np.float64) if weighted else adjacency.data
    dataset = catalog.create("web")
    store_graph(dataset, adjacency, symmetric=False, weighted=weighted)
    return dataset, adjacency.toarray()


@pytest.mark.parametrize("weighted", [False, True])
def test_dgl_gets_edges_from_source_to_target(catalog: Catalog, weighted: bool) -> None:
    dataset, dense = store(catalog, weighted=weighted)
    pieces = to_dgl_description(dataset)
    sources, targets = pieces["edges"]
    rebuilt = np.zeros_like(dense)
    rebuilt[targets, sources] = pieces["edata"].get("weight", 1)
    np.testing.assert_array_equal(rebuilt, dense)
    assert (pieces["num_nodes"], pieces["ndata"], sources.dtype) == (20, {}, np.int64)
    with pytest.raises(BudgetError):
        to_dgl_description(dataset, max_nnz=3)


def test_pyg_gets_the_same_graph_with_features_and_masks(catalog: Catalog) -> None:
    pytest.importorskip("torch_geometric")
    dataset, dense = store(catalog, weighted=True)
    feature, split = np.random.default_rng(0).random((20, 3)), np.arange(20) % 4
    store_vertices(dataset, feature, np.arange(20) % 3 - 1, split)
    data = to_pyg(dataset)
    assert data.validate()
    assert data.edge_index is not None
    assert isinstance(data.y, torch.Tensor)
    rebuilt = np.zeros_like(dense)
    rebuilt[data.edge_index[1], data.edge_index[0]] = data.edge_weight
    np.testing.assert_array_equal(rebuilt, dense)
    np.testing.assert_array_equal(data.x, feature.astype(np.float32))
    np.testing.assert_array_equal(data.val_mask, split == 2)
    assert int(data.y.min()) == -1
