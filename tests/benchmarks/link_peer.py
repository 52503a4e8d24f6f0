"""PyG in bench_links: the same graph without held-out edges, pairs, widths, loss and optimizer as gnnloom.

python tests/benchmarks/link_peer.py CATALOG DATASET csr|sparse|neighbor-WORKERS EPOCHS

``neighbor`` is a LinkNeighborLoader with that number of processes; its layers leave out what later ones do not need.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import torch
from epoch_figures import Clock, report
from neighbor_peer import hops_of
from torch import Tensor, nn
from torch_geometric.data.data import Data
from torch_geometric.loader.link_neighbor_loader import LinkNeighborLoader
from torch_geometric.nn import GCNConv
from torch_geometric.nn.models.basic_gnn import GraphSAGE
from torch_geometric.sampler.base import NegativeSampling
from torch_geometric.utils import to_torch_csr_tensor

from gnnloom.storage import Catalog

WIDTH, FANOUTS, BATCH, RATE = 128, [15, 10], 1024, 0.01


class Whole(nn.Module):
    """A GCN of two layers; the normalized adjacency of the whole graph is computed once."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        how = {"cached": True, "add_self_loops": False}
        self.first = GCNConv(num_features, WIDTH, **how)
        self.second = GCNConv(WIDTH, WIDTH, **how)

    def forward(self, features: Tensor, edges: Any) -> Tensor:
        result: Tensor = self.second(self.first(features, edges).relu(), edges)
        return result


class Sampled(nn.Module):
    """GraphSAGE of two layers, on batches with the numbers of what each hop added."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.layers = GraphSAGE(num_features, WIDTH, 2, WIDTH)

    def forward(self, features: Tensor, edges: Any) -> Tensor:
        index, num_vertices, num_edges = edges
        hops = {"num_sampled_nodes_per_hop": num_vertices, "num_sampled_edges_per_hop": num_edges}
        result: Tensor = self.layers(features, index, **hops)
        return result


def main() -> None:
    catalog, name, kind, epochs = sys.argv[1:]
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(0)
    dataset = Catalog(catalog).dataset(name)
    links = dataset.links()
    graph = dataset.graph(links.message_graph).to_scipy().tocoo()
    edges = torch.stack([torch.from_numpy(graph.col.astype("int64")), torch.from_numpy(graph.row.astype("int64"))])
    features = torch.from_numpy(dataset.vertices().feature())
    pairs = torch.from_numpy(links.pair("train")).T.contiguous()
    kind, _, workers = kind.partition("-")
    net = Sampled(features.shape[1]) if kind == "neighbor" else Whole(features.shape[1])
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    steps = (
        _batches(features, edges, pairs, int(workers))
        if kind == "neighbor"
        else _whole(features, _matrix(kind, edges, len(features)), pairs)
    )
    del graph, edges, pairs
    clock, losses = Clock(), []
    for _ in range(int(epochs)):
        total, count = 0.0, 0
        for given, adjacency, ends, label in steps():
            optimizer.zero_grad()
            vectors = net(given, adjacency)
            scores = (vectors[ends[0]] * vectors[ends[1]]).sum(1)
            loss = nn.functional.binary_cross_entropy_with_logits(scores, label)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total, count = total + float(loss.detach()) * len(label), count + len(label)
        losses.append(total / count)
        clock.mark()
    report({**clock.figures(), "loss": losses})


def _matrix(kind: str, edges: Tensor, num_vertices: int) -> Any:
    """The graph as PyG's layers take it. It is undirected, so rows and columns may be swapped."""
    if kind == "csr":
        return to_torch_csr_tensor(edges, size=(num_vertices, num_vertices))
    from torch_sparse import SparseTensor

    return SparseTensor.from_edge_index(edges, sparse_sizes=(num_vertices, num_vertices))


def _whole(features: Tensor, adjacency: Any, pairs: Tensor) -> Any:
    """One step with all pairs, and a negative for each."""
    label = torch.cat([torch.ones(pairs.shape[1]), torch.zeros(pairs.shape[1])])

    def steps() -> Iterator[tuple[Tensor, Any, Tensor, Tensor]]:
        drawn = torch.stack([pairs[0], torch.randint(len(features), (pairs.shape[1],))])
        yield features, adjacency, torch.cat([pairs, drawn], 1), label

    return steps


def _batches(features: Tensor, edges: Tensor, pairs: Tensor, workers: int) -> Any:
    """Batches of pairs with sampled neighbors, and a negative for each pair."""
    loader = LinkNeighborLoader(
        Data(x=features, edge_index=edges),
        num_neighbors=FANOUTS,
        batch_size=BATCH,
        edge_label_index=pairs,
        edge_label=torch.ones(pairs.shape[1]),
        neg_sampling=NegativeSampling("binary"),
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )

    def steps() -> Iterator[tuple[Tensor, Any, Tensor, Tensor]]:
        for batch in loader:
            # The ends of the pairs are numbered first.
            hops = hops_of(batch, int(batch.edge_label_index.max()) + 1, FANOUTS)
            yield batch.x, (batch.edge_index, *hops), batch.edge_label_index, batch.edge_label

    return steps


if __name__ == "__main__":
    main()
